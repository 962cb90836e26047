package file

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
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
	Limit     int    `json:"limit,omitempty" jsonschema:"how many lines, instead of end_line"`
	TailLines int    `json:"tail_lines,omitempty" jsonschema:"the last lines instead"`
	MaxChars  int    `json:"max_chars,omitempty"`
	MaxDepth  int    `json:"max_depth,omitempty" jsonschema:"of a folder listing; default 3"`
	Since     string `json:"since,omitempty" jsonschema:"of a folder listing: only files modified since a time (2026-11-30T08:00:00+01:00) or within a duration (24h)"`

	SheetName  string `json:"sheet_name,omitempty" jsonschema:"of a spreadsheet (.xlsx); when absent that which opens in front"`
	MaxRows    int    `json:"max_rows,omitempty" jsonschema:"of a spreadsheet; default 8, at most 50"`
	MaxColumns int    `json:"max_columns,omitempty" jsonschema:"of a spreadsheet; default 8, at most 30"`

	StartPage int `json:"start_page,omitempty" jsonschema:"of a PDF; default 1"`

	paged bool // a start after the end is an empty range, not a fault (YOA-01)
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

var readSpec = withSynonyms(core(paged(reading("file_read", readText, tool.ClassRead), "start_line")), [2]string{"start_line", "offset"})

// paged says how a long answer is cut for a small context: lines have numbers, and start asks for the next.
func paged(s tool.Spec, start string) tool.Spec {
	s.Paging = tool.Paging{Field: "text", Start: start, Next: "next_start_line"}
	return s
}

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
	// Pictures are recognized by their content, whatever their name is.
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

	// A byte order mark is not part of the first line.
	return f.selectLines(a, f.hidden(strings.TrimPrefix(text, "\ufeff"))), nil
}

// pathFailure is the answer to a call whose path cannot be used.
func pathFailure(path string, err error) tool.Envelope {
	var bad *tool.PathError
	if errors.As(err, &bad) {
		return bad.Envelope()
	}
	return tool.Failure(tool.KindExecutionError, "%s cannot be used: %v", path, err).WithField("path", "")
}

// decodeText reads a text file, and refuses what is not text.
func decodeText(file *os.File, shown string) (string, error) {
	var all bytes.Buffer
	if info, err := file.Stat(); err == nil {
		all.Grow(int(min(info.Size(), maxRaw)) + bytes.MinRead)
	}

	// One byte more than allowed tells a file that is too large, also one that has grown since Stat.
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

// selectLines answers with the wanted lines, as many of them as fit.
func (f *files) selectLines(a readArgs, content string) tool.Envelope {
	all := strings.Split(strings.TrimSuffix(content, "\n"), "\n")
	if content == "" {
		all = nil // Split finds one line in it
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
			line = text.Truncate(f.redact(line), most) + "\n"
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

// numberLine puts a line's number in front of it: six wide, |, no space.
func numberLine(n int, line string) string {
	return fmt.Sprintf("%6d|%s\n", n, strings.TrimSuffix(line, "\r"))
}

// lineRange is the range of lines that a call asks for, from 1, both ends included. An empty file has
// a line 1 to start from.
func lineRange(a readArgs, total int) (from, to int, bad *tool.Envelope) {
	refuse := func(field, expected, format string, args ...any) (int, int, *tool.Envelope) {
		e := tool.Failure(tool.KindInvalidArgs, format, args...).WithField(field, expected)
		return 0, 0, &e
	}
	from, to = 1, total

	switch {
	case a.StartLine < 0 || a.EndLine < 0 || a.TailLines < 0:
		return refuse("start_line", "1 or more", "lines are counted from 1")
	case a.Limit < 0:
		return refuse("limit", "1 or more", "limit is 1 or more")
	case a.TailLines > 0 && (a.StartLine > 0 || a.EndLine > 0 || a.Limit > 0):
		return refuse("tail_lines", "", "give tail_lines, or the lines to begin and end with, not both")
	case a.Limit > 0 && a.EndLine > 0:
		return refuse("limit", "", "give end_line or limit, not both")
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

	switch {
	case a.EndLine > 0:
		to = min(a.EndLine, total)
	case a.Limit > 0:
		to = from + min(a.Limit, total-from+1) - 1 // so that the sum of two huge numbers does not overflow
	}

	return from, to, nil
}

// defaultPage is how many lines read_file gives without a limit (YOA-01).
const defaultPage = 500

const readAliasText = "Read a text file, look at a picture (PNG, JPEG, WebP, GIF, BMP), read the words of a PDF, see the beginning of a spreadsheet (.xlsx), or list a folder. `offset` is the first line, from 1; `limit` is how many, 500 unless given. Each line comes with its number and ` | `, which are not part of the file."

type readAliasArgs struct {
	Path      string `json:"path" jsonschema:"relative to the working folder, or absolute inside a granted folder"`
	Offset    int    `json:"offset,omitempty" jsonschema:"the first line, from 1"`
	Limit     int    `json:"limit,omitempty" jsonschema:"how many lines; default 500"`
	StartLine int    `json:"start_line,omitempty"`
	EndLine   int    `json:"end_line,omitempty"`
	TailLines int    `json:"tail_lines,omitempty" jsonschema:"the last lines instead"`
	MaxChars  int    `json:"max_chars,omitempty"`
	MaxDepth  int    `json:"max_depth,omitempty" jsonschema:"of a folder listing; default 3"`

	SheetName  string `json:"sheet_name,omitempty" jsonschema:"of a spreadsheet (.xlsx); when absent that which opens in front"`
	MaxRows    int    `json:"max_rows,omitempty" jsonschema:"of a spreadsheet; default 8, at most 50"`
	MaxColumns int    `json:"max_columns,omitempty" jsonschema:"of a spreadsheet; default 8, at most 30"`

	StartPage int `json:"start_page,omitempty" jsonschema:"of a PDF; default 1"`
}

// readArgs are the same for file_read. Without an end it is a page.
func (a readAliasArgs) readArgs() readArgs {
	r := readArgs{Path: a.Path, StartLine: cmp.Or(a.Offset, a.StartLine), EndLine: a.EndLine, Limit: a.Limit, TailLines: a.TailLines, MaxChars: a.MaxChars,
		MaxDepth: a.MaxDepth, SheetName: a.SheetName, MaxRows: a.MaxRows, MaxColumns: a.MaxColumns, StartPage: a.StartPage, paged: true}
	if r.EndLine == 0 && r.TailLines == 0 && r.Limit == 0 {
		r.Limit = defaultPage
	}
	return r
}

// readAlias is read_file (YOA-01): the same reader with another gutter (UNI-01).
func (f *files) readAlias(s tool.Spec) (tool.Tool, error) {
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a readAliasArgs) (tool.Envelope, error) {
		if a.Offset > 0 && a.StartLine > 0 && a.Offset != a.StartLine {
			return tool.Failure(tool.KindInvalidArgs, "offset and start_line are the same; give one of them").WithField("offset", ""), nil
		}

		r := a.readArgs()
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

// renderPage turns an answer of file_read into one of read_file: other line numbers, and a header. from is
// the first line, if the text does not tell.
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
