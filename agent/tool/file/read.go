package file

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/internal/text"
)

//go:embed read.md
var readText string

// Limits of file_read (OSA-31).
const (
	maxChars   = 15_000
	maxRaw     = 5 << 20 // bytes
	sniffBytes = 4 << 10 // bytes that are looked at for a NUL
)

type readArgs struct {
	Path      string `json:"path" jsonschema:"relative to the working folder, or absolute inside a granted folder"`
	StartLine int    `json:"start_line,omitempty"`
	EndLine   int    `json:"end_line,omitempty"`
	TailLines int    `json:"tail_lines,omitempty" jsonschema:"the last lines instead"`
	MaxChars  int    `json:"max_chars,omitempty"`
	MaxDepth  int    `json:"max_depth,omitempty" jsonschema:"of a folder listing; default 3"`

	SheetName  string `json:"sheet_name,omitempty" jsonschema:"of a spreadsheet (.xlsx); when absent that which opens in front"`
	MaxRows    int    `json:"max_rows,omitempty" jsonschema:"of a spreadsheet; default 8, at most 50"`
	MaxColumns int    `json:"max_columns,omitempty" jsonschema:"of a spreadsheet; default 8, at most 30"`

	StartPage int `json:"start_page,omitempty" jsonschema:"of a PDF; default 1"`

	paged bool // a start behind the end is an empty range (YOA-01)
}

type readResult struct {
	Kind            string `json:"kind"` // file
	Path            string `json:"path"`
	Text            string `json:"text"`
	TotalLines      int    `json:"total_lines"`
	Truncated       bool   `json:"truncated"`
	NextStartLine   int    `json:"next_start_line,omitempty"`
	NextEndLine     int    `json:"next_end_line,omitempty"`
	EndsWithNewline bool   `json:"ends_with_newline"`
}

var readSpec = reading("file_read", readText, tool.ClassRead)

func (f *files) readTool(s tool.Spec) (tool.Tool, error) {
	return tool.Define(s, f.read)
}

func (f *files) read(ctx context.Context, _ tool.Invocation, a readArgs) (tool.Envelope, error) {
	file, err := f.roots.Open(a.Path)
	var bad *tool.PathError
	switch {
	case errors.As(err, &bad) && bad.Kind == tool.KindNotFound:
		return f.notFoundWithCandidates(ctx, a.Path, bad), nil
	case err != nil:
		return pathFailure(a.Path, err), nil
	}

	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return pathFailure(a.Path, err), nil
	}
	if info.IsDir() {
		return f.list(a), nil
	}
	if e, is := picture(file, a.Path, info.Size()); is {
		return e, nil
	}

	if e, is, err := f.preview(ctx, file, a, info.Size()); is || err != nil {
		return e, err
	}

	text, err := decodeText(file, a.Path)
	if err != nil {
		return pathFailure(a.Path, err), nil
	}

	return selectLines(a, strings.TrimPrefix(text, "\ufeff")), nil
}

// pathFailure is the answer for a path that cannot be used.
func pathFailure(path string, err error) tool.Envelope {
	var bad *tool.PathError
	if errors.As(err, &bad) {
		return bad.Envelope()
	}
	return tool.Failure(tool.KindExecutionError, "%s cannot be used: %v", path, err).WithField("path", "")
}

// decodeText reads a text file, and refuses what is none.
func decodeText(file *os.File, shown string) (string, error) {
	var all bytes.Buffer
	if info, err := file.Stat(); err == nil {
		all.Grow(int(min(info.Size(), maxRaw)) + bytes.MinRead)
	}

	_, err := all.ReadFrom(io.LimitReader(file, maxRaw+1))
	text := all.Bytes()
	switch {
	case err != nil:
		return "", err
	case len(text) > maxRaw:
		return "", &tool.PathError{Kind: tool.KindRejected, Message: fmt.Sprintf("%s has more than the %d bytes that the file tools take", shown, maxRaw)}
	case bytes.IndexByte(text[:min(len(text), sniffBytes)], 0) >= 0 || !utf8.Valid(text):
		return "", &tool.PathError{Kind: tool.KindRejected, Message: shown + " is not a text file in UTF-8"}
	}

	return string(text), nil
}

// selectLines chooses the wanted lines, and as many of them as an answer holds.
func selectLines(a readArgs, content string) tool.Envelope {
	all := strings.Split(strings.TrimSuffix(content, "\n"), "\n")
	if content == "" {
		all = nil
	}

	from, to, bad := lineRange(a, len(all))
	if bad != nil {
		return *bad
	}

	most := maxChars
	if a.MaxChars > 0 {
		most = min(a.MaxChars, maxChars)
	}

	res := readResult{Kind: "file", Path: a.Path, TotalLines: len(all), EndsWithNewline: strings.HasSuffix(content, "\n")}
	var out strings.Builder
	var warnings []string
	used, next := 0, from
	for ; next <= to; next++ {
		line := numberLine(next, all[next-1])
		n := utf8.RuneCountInString(line)
		if used+n > most && used > 0 {
			break
		}

		if n > most { // a line that is too long by itself would never be shown
			line = text.Truncate(line, most) + "\n"
			res.Truncated = true
			warnings = append(warnings, fmt.Sprintf("line %d has %d characters; only its beginning is shown", next, utf8.RuneCountInString(all[next-1])))
		}

		out.WriteString(line)
		used += n
	}

	res.Text = out.String()
	if next <= to {
		res.Truncated, res.NextStartLine, res.NextEndLine = true, next, to
	}

	return tool.Success(res, warnings...)
}

// numberLine puts a line's number before it: six wide, |, no space.
func numberLine(n int, line string) string {
	return fmt.Sprintf("%6d|%s\n", n, strings.TrimSuffix(line, "\r"))
}

// lineRange is the range of lines that is asked for, from 1, both ends included.
func lineRange(a readArgs, total int) (from, to int, bad *tool.Envelope) {
	refuse := func(field, expected, format string, args ...any) (int, int, *tool.Envelope) {
		e := tool.Failure(tool.KindInvalidArgs, format, args...).WithField(field, expected)
		return 0, 0, &e
	}
	from, to = 1, total

	switch {
	case a.StartLine < 0 || a.EndLine < 0 || a.TailLines < 0:
		return refuse("start_line", "1 or more", "lines are counted from 1")
	case a.TailLines > 0 && (a.StartLine > 0 || a.EndLine > 0):
		return refuse("tail_lines", "", "give tail_lines, or start_line and end_line, not both")
	case a.StartLine > max(total, 1) && a.paged:
		return total + 1, total, nil
	case a.StartLine > max(total, 1):
		return refuse("start_line", fmt.Sprintf("1 to %d", max(total, 1)), "%s has %d lines; there is no line %d", a.Path, total, a.StartLine)
	case a.EndLine > 0 && a.EndLine < a.StartLine:
		return refuse("end_line", fmt.Sprintf("%d or more", a.StartLine), "end_line %d is before start_line %d", a.EndLine, a.StartLine)
	case a.TailLines > 0:
		return max(total-a.TailLines+1, 1), total, nil
	}

	if a.StartLine > 0 {
		from = a.StartLine
	}

	if a.EndLine > 0 {
		to = min(a.EndLine, total)
	}

	return from, to, nil
}
