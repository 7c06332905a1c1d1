#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the manual pages: gen-man.py HELP.json HEADER PROSE_DIR DATE OUT...

What the program knows about itself comes from `atoll help --json`: commands, words, options, exit
codes; the functions of libatoll come from its header. What only a person can say is in PROSE_DIR,
<page>.mdoc: text for the description, then whole sections. In it @COMMANDS@, @OPTIONS@,
@EXIT_STATUS@ and @FUNCTIONS@ stand for the generated lists.
"""

import json
import pathlib
import re
import sys

HEAD = """.\\" SPDX-License-Identifier: Apache-2.0
.\\" Made by tools/gen-man.py.
.Dd {date}
.Dt {title} {section}
.Os
.Sh NAME
"""


def text(words):
    """Plain text as mdoc: nothing in it is taken for a macro."""
    lines = []
    words = re.sub(r"(?<=[a-z0-9)])\. (?=[A-Z])", ".\n", words)
    for line in words.split("\n"):
        line = re.sub(r"`([^`]*)`", r"\1", line).replace("\\", "\\e").replace('"', "\\(dq")
        lines.append("\\&" + line if line[:1] in (".", "'") else line)
    return "\n".join(lines)


def sentence(words):
    words = text(words)
    if not re.match(r"[\w-]+: ", words):  # "special: new devices" begins with a word to type
        words = words[:1].upper() + words[1:]
    return words + ("" if words.endswith(".") else ".")


def value(option):
    if not option["value"]:
        return ""
    if option["kind"] == "choice":
        return " Cm " + " | ".join(option["choices"])
    name = option["value"].lower()
    return " Ar " + name.replace("=", " Ns = Ns Ar ")


def option_list(options):
    lines = [".Bl -tag -width Ds"]
    for option in options:
        letter = f"{option['letter']} , " if option["letter"] else ""
        lines.append(f".It Fl {letter}-{option['name']}{value(option)}")
        lines.append(sentence(option["help"]))
    return "\n".join(lines + [".El"])


def word_list(words):
    """"PLAN [PATH]..." as macros; "[--]" too."""
    lines = []
    for word in words.split():
        name = re.sub(r"[\[\].]", "", word)
        if name == "--":
            macro = "Fl -"
        elif "|" in name or name.islower():
            macro = "Cm " + name.replace("|", " | ")
        else:
            macro = "Ar " + name.lower()
        if word.startswith("["):
            macro = "Op " + macro + (" ..." if word.endswith("...") else "")
        lines.append("." + macro)
    return lines


def exit_list(rows, column):
    lines = [".Bl -tag -width Ds -compact"]
    for row in rows:
        if row[column] and not (column == "command" and row["others"]):
            lines += [f".It {row['status']}", sentence(row[column])]
    return "\n".join(lines + [".El"])


def exit_status(rows, of_command):
    if not of_command:
        return exit_list(rows, "others")
    return "The command's own, or\n.Pp\n" + exit_list(rows, "command")


def command_list(commands):
    lines = [".Bl -tag -width Ds"]
    for command in commands:
        lines += [f".It Xr atoll-{command['name']} 1", sentence(command["summary"])]
        lines += ["Also accepted:", ".Cm " + " , ".join(command["also"]) + " ."] if command["also"] else []
    return "\n".join(lines + [".El"])


def function_list(header):
    """The functions of each part of the header, under the name the part has there."""
    lines = []
    for part in re.split(r"/\* ---- ", header)[1:]:
        names = re.findall(r"\b(atoll_\w+)\(", re.sub(r"/\*.*?\*/|typedef[^;]*;", "", part, flags=re.S))
        names = list(dict.fromkeys(names))
        if not names:
            continue
        title = part.split("-")[0].strip()
        lines += [f".Ss {title[:1].upper()}{title[1:]}", ".Bl -item -compact"]
        for name in names:
            lines += [".It", f".Fn {name}"]
        lines.append(".El")
    return "\n".join(lines)


def fill(prose, table, header):
    both = (
        exit_list(table["exit_status"], "others")
        + "\n.Pp\n.Cm exec , run\nand\n.Cm shell\nexit with the command's status, or with\n.Pp\n"
        + exit_list(table["exit_status"], "command")
    )
    for mark, made in (
        ("@COMMANDS@", command_list(table["commands"])),
        ("@OPTIONS@", option_list(table["options"])),
        ("@EXIT_STATUS@", both),
        ("@FUNCTIONS@", function_list(header)),
    ):
        prose = prose.replace(mark, made)
    return prose.rstrip("\n")


def examples(rows):
    lines = []
    for row in rows:
        typed = row["typed"].replace("\\", "\\e")
        lines += [sentence(row["does"]), ".Bd -literal -offset indent", f"$ {typed}", ".Ed", ".Pp"]
    return "\n".join(lines[:-1])


def command_page(command, prose, table, header):
    name = command["name"]
    described, _, sections = ("\n" + prose).partition("\n.Sh ")
    lines = [f".Nm atoll-{name}", f".Nd {text(command['summary'])}", ".Sh SYNOPSIS"]
    lines += [".Nm atoll", f".Cm {name}", ".Op Ar option ..."] + word_list(command["words"])
    lines += [".Sh DESCRIPTION", sentence(command["summary"])]
    if command["remote_words"] is not None:
        there = [".Nm atoll", f".Fl -remote Ar name Cm {name}", ".Op Ar option ..."]
        at = lines.index(".Sh DESCRIPTION")
        lines[at:at] = there + word_list(command["remote_words"])
    if command["also"]:
        lines += [".Pp", "Also accepted as", ".Cm " + " , ".join(command["also"]) + " ."]
    for words in (command["about"] and text(command["about"]), described.strip("\n")):
        lines += [".Pp", words] if words else []
    if command["remote_words"] is not None:
        lines += [".Pp", "With", ".Fl -remote :", sentence(command["remote_summary"]), "See", ".Xr atoll-remote 1 ."]
    lines += [".Sh OPTIONS"]
    if command["options"]:
        lines += [option_list(command["options"]), ".Pp"]
    lines += ["The options of every command are in", ".Xr atoll 1 ."]
    lines += [".Sh EXIT STATUS", exit_status(table["exit_status"], command["command_exit"])]
    if ".Sh EXAMPLES" not in prose and command["examples"]:
        lines += [".Sh EXAMPLES", examples(command["examples"])]
    if sections:
        lines += [".Sh " + fill(sections, table, header)]
    lines += [".Sh SEE ALSO", ".Xr atoll 1"]
    return "\n".join(lines)


def main():
    table = json.loads(pathlib.Path(sys.argv[1]).read_text())
    header = pathlib.Path(sys.argv[2]).read_text()
    prose_dir = pathlib.Path(sys.argv[3])
    commands = {f"atoll-{c['name']}": c for c in table["commands"]}
    outputs = [pathlib.Path(out) for out in sys.argv[5:]]

    made = {out.stem for out in outputs}
    if made - {"atoll", "libatoll"} != set(commands):
        sys.exit(f"pages and commands differ: {sorted(made ^ set(commands))}")
    for out in outputs:
        head = HEAD.format(date=sys.argv[4], title=out.stem.upper(), section=out.suffix[1:])
        file = prose_dir / f"{out.stem}.mdoc"
        prose = file.read_text() if file.exists() else ""
        prose = re.sub(r'^\.\\".*\n', "", prose, flags=re.M)
        if out.stem in commands:
            body = command_page(commands[out.stem], prose, table, header)
        else:
            body = fill(prose, table, header)
        out.write_text(head + body + "\n")


main()
