/* SPDX-License-Identifier: Apache-2.0 */
/* What is painted in which way, by whoever knows how. */
#ifndef ANSWER_PAINT_H
#define ANSWER_PAINT_H

enum paint { PAINT_NONE = 0, PAINT_GOOD, PAINT_BAD, PAINT_CHANGED, PAINT_DIM, PAINT_END_ };

#endif
