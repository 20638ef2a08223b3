package tool

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// column of a table. A value longer than its column is cut on the left and gets
// a leading "...", unless whole is set.
type column struct {
	title string
	width int
	whole bool
}

func (c column) cell(v string) string {
	if v == "" {
		v = "-"
	}
	if r := []rune(v); len(r) > c.width && !c.whole {
		v = "..." + string(r[len(r)-c.width+3:])
	}
	return v + strings.Repeat(" ", max(0, c.width-utf8.RuneCountInString(v)))
}

func printRow(w io.Writer, columns []column, values ...string) {
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = c.cell(values[i])
	}
	printf(w, "%s\n", strings.Join(cells, " "))
}

func printHeader(w io.Writer, columns []column) {
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	printRow(w, columns, titles...)
}

// number prints -1 as "-".
func number[T int16 | int32 | int64](n T) string {
	if n == -1 {
		return "-"
	}
	return strconv.FormatInt(int64(n), 10)
}
