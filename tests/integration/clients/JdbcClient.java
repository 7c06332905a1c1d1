// SPDX-License-Identifier: Apache-2.0
// What a program does with JDBC, by JDBC_DATABASE_URL. It prints all it sees.

import java.io.StringReader;
import java.io.StringWriter;
import java.sql.*;
import java.util.*;
import org.postgresql.PGConnection;

public class JdbcClient {
	interface Work {
		void run() throws Exception;
	}

	static void show(Object... words) {
		System.out.println(Arrays.deepToString(words));
	}

	static void rows(ResultSet set) throws SQLException {
		List<List<Object>> all = new ArrayList<>();
		while (set.next()) {
			List<Object> row = new ArrayList<>();
			for (int i = 1; i <= set.getMetaData().getColumnCount(); i++)
				row.add(set.getObject(i));
			all.add(row);
		}
		show(all);
	}

	static void query(Connection c, String text) throws SQLException {
		try (Statement s = c.createStatement()) {
			boolean set = s.execute(text);
			while (set || s.getUpdateCount() >= 0) {
				if (set)
					rows(s.getResultSet());
				else
					show(s.getUpdateCount());
				set = s.getMoreResults();
			}
		}
	}

	static void refused(Work work) throws Exception {
		try {
			work.run();
			show("not refused");
		} catch (SQLException error) {
			show("refused", error.getSQLState(), error.getMessage().split("\n")[0]);
		}
	}

	static void blocks(Connection c) throws Exception {
		c.setAutoCommit(false);
		query(c, "insert into t values (10, 'ten')");
		List<Savepoint> saved = new ArrayList<>();
		for (int depth = 0; depth < 3; depth++) {
			saved.add(c.setSavepoint("s" + depth));
			query(c, "insert into t values (" + (11 + depth) + ", 'deep')");
		}
		refused(() -> query(c, "insert into t values (10, 'twice')"));
		refused(() -> query(c, "select 1"));
		c.rollback(saved.get(1));
		c.releaseSavepoint(saved.get(0));
		refused(() -> c.rollback(saved.get(2)));
		c.rollback();
		query(c, "select * from t order by id");
		Savepoint unnamed = c.setSavepoint();
		query(c, "delete from t where id = 1");
		c.rollback(unnamed);
		query(c, "insert into t values (15, 'kept')");
		c.commit();
		c.setAutoCommit(true);
		query(c, "select * from t order by id");
		refused(() -> query(c, "insert into t values (16); select 1/0"));
		query(c, "begin; delete from t; rollback; select count(*) from t");
	}

	/* From the second time on by a named statement of the server. */
	static void prepared(Connection c) throws Exception {
		try (PreparedStatement s = c.prepareStatement("select v from t where id = ?")) {
			s.unwrap(org.postgresql.PGStatement.class).setPrepareThreshold(1);
			for (int i = 1; i <= 4; i++) {
				s.setInt(1, i);
				rows(s.executeQuery());
			}
			show(s.getParameterMetaData().getParameterCount(), s.getMetaData().getColumnName(1));
		}
		c.setAutoCommit(false);
		try (PreparedStatement s = c.prepareStatement("insert into t values (?, ?)")) {
			for (int i = 20; i < 30; i++) {
				s.setInt(1, i);
				s.setString(2, "batch");
				s.addBatch();
			}
			show(s.executeBatch());
			c.commit();
			for (int i = 35; i > 25; i--) {
				s.setInt(1, i);
				s.setString(2, "again");
				s.addBatch();
			}
			refused(() -> show(s.executeBatch()));
		}
		c.rollback();
		c.setAutoCommit(true);
		query(c, "select count(*) from t");
	}

	/* The driver sets a savepoint before each statement, and goes back to it when that fails. */
	static void saving(String url) throws Exception {
		try (Connection c = DriverManager.getConnection(url + "&autosave=always&prepareThreshold=1")) {
			c.setAutoCommit(false);
			for (int round = 0; round < 3; round++) {
				query(c, "insert into t values (" + (40 + round) + ", 'saved')");
				refused(() -> query(c, "insert into t values (40, 'twice')"));
				refused(() -> query(c, "select nothing"));
				query(c, "select count(*) from t");
			}
			c.commit();
			query(c, "delete from t where id = 41");
			c.rollback();
			query(c, "select id from t where id >= 40 order by id");
			c.commit();
		}
	}

	static void cursors(Connection c) throws Exception {
		c.setAutoCommit(false);
		try (Statement s = c.createStatement()) {
			s.setFetchSize(3);
			ResultSet set = s.executeQuery("select id from t order by id");
			int seen = 0;
			while (set.next())
				seen++;
			show(seen);
			set = s.executeQuery("select id from t order by id");
			set.next();
			query(c, "insert into t values (50, 'meanwhile')");
			rows(set);
		}
		c.commit();
		c.setAutoCommit(true);
	}

	static void copies(Connection c) throws Exception {
		var copy = c.unwrap(PGConnection.class).getCopyAPI();
		show(copy.copyIn("copy t from stdin", new StringReader("60\tcopied\n61\t\\N\n")));
		StringWriter out = new StringWriter();
		show(copy.copyOut("copy (select * from t where id >= 60 order by id) to stdout", out), out);
		refused(() -> copy.copyIn("copy t from stdin", new StringReader("junk\n")));
		c.setAutoCommit(false);
		refused(() -> copy.copyIn("copy t from stdin", new StringReader("60\ttwice\n")));
		c.rollback();
		c.setAutoCommit(true);
		query(c, "select count(*) from t");
	}

	static void settings(Connection c) throws Exception {
		c.setReadOnly(true);
		c.setAutoCommit(false);
		refused(() -> query(c, "delete from t"));
		c.rollback();
		c.setReadOnly(false);
		c.setAutoCommit(true);
		c.setSchema("pg_catalog");
		query(c, "select current_schema");
		c.setSchema("public");
		c.setClientInfo("ApplicationName", "client");
		query(c, "show application_name");
		try (ResultSet set = c.getMetaData().getColumns(null, "public", "t", null)) {
			while (set.next())
				show(set.getString("COLUMN_NAME"), set.getString("TYPE_NAME"));
		}
		show(c.isValid(5));
	}

	public static void main(String[] words) throws Exception {
		String url = System.getenv("JDBC_DATABASE_URL");
		try (Connection c = DriverManager.getConnection(url)) {
			show("== blocks");
			blocks(c);
			show("== prepared");
			prepared(c);
			show("== saving");
			saving(url);
			show("== cursors");
			cursors(c);
			show("== copies");
			copies(c);
			show("== settings");
			settings(c);
		}
		try (Connection c = DriverManager.getConnection(url + "&reWriteBatchedInserts=true&preferQueryMode=simple")) {
			show("== simple");
			query(c, "delete from t where id >= 10");
			blocks(c);
		}
	}
}
