package file

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/text"
)

// defaultPage is how many lines read_file gives without a limit (YOA-01).
const defaultPage = 500

const readAliasText = "Read a text file, look at a picture (PNG, JPEG, WebP, GIF, BMP), read the words of a PDF, see the beginning of a spreadsheet (.xlsx), or list a folder. `offset` is the first line, from 1; `limit` is how many, 500 unless given. Each line comes with its number and ` | `, which are not part of the file."

// readAlias is read_file (YOA-01): the same reader with other arguments and another gutter (UNI-01).
func (f *files) readAlias(s tool.Spec) (tool.Tool, error) {
	type args struct {
		Path      string `json:"path" jsonschema:"relative to the working folder, or absolute inside a granted folder"`
		Offset    int    `json:"offset,omitempty" jsonschema:"the first line, from 1"`
		Limit     int    `json:"limit,omitempty" jsonschema:"how many lines; default 500"`
		StartLine int    `json:"start_line,omitempty"`
		EndLine   int    `json:"end_line,omitempty"`
		TailLines int    `json:"tail_lines,omitempty" jsonschema:"the last lines instead"`
		MaxChars  int    `json:"max_chars,omitempty"`
		StartPage int    `json:"start_page,omitempty" jsonschema:"of a PDF; default 1"`
	}
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a args) (tool.Envelope, error) {
		if a.Offset < 0 || a.Limit < 0 {
			return tool.Failure(tool.KindInvalidArgs, "lines are counted from 1, and limit is 1 or more").WithField("offset", "1 or more"), nil
		}

		r := readArgs{Path: a.Path, StartLine: cmp.Or(a.Offset, a.StartLine), EndLine: a.EndLine, TailLines: a.TailLines, MaxChars: a.MaxChars, StartPage: a.StartPage, paged: true}
		if r.EndLine == 0 && r.TailLines == 0 {
			limit := min(cmp.Or(a.Limit, defaultPage), 1<<30)
			r.EndLine = min(max(r.StartLine, 1), 1<<30) + limit - 1
		}

		e, err := f.read(ctx, in, r)
		if err != nil || !e.OK {
			return e, err
		}

		var res readResult
		if err := json.Unmarshal(e.Result, &res); err != nil || res.Kind != "file" {
			return e, nil //nolint:nilerr // a listing or a picture has no lines
		}

		return tool.Success(renderPage(res, max(r.StartLine, 1)), e.Warnings...), nil
	})
}

// renderPage puts the header and the gutter of read_file on what file_read gave from a line on.
func renderPage(res readResult, from int) readResult {
	var lines []string
	if res.Text != "" {
		lines = strings.Split(strings.TrimSuffix(res.Text, "\n"), "\n")
	}

	var out strings.Builder
	for i, line := range lines {
		number, bare, _ := strings.Cut(line, "|")
		if i == 0 {
			if n, err := strconv.Atoi(strings.TrimSpace(number)); err == nil {
				from = n // tail_lines begins where it begins
			}
		}
		fmt.Fprintf(&out, "%4d | %s\n", from+i, bare)
	}

	last := from + len(lines) - 1
	header := fmt.Sprintf("[Lines %d-%d of %d]\n", from, last, res.TotalLines)
	switch {
	case len(lines) == res.TotalLines:
		header = "[" + text.Plural(res.TotalLines, "line") + "]\n"
	case len(lines) == 0:
		header = fmt.Sprintf("[No line %d: the file has %d]\n", from, res.TotalLines)
	case last < res.TotalLines:
		header = fmt.Sprintf("[Lines %d-%d of %d; go on with offset %d]\n", from, last, res.TotalLines, last+1)
	}

	res.Text = header + out.String()
	return res
}
