package file

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/agentdb/tabular"
	"rouse/internal/text"
)

var (
	//go:embed read.md
	readText string

	readSpec = reading("file_read", readText, tool.ClassRead, tool.Spec{
		Core: true, Paging: paged("start_line"), Synonyms: [][2]string{{"start_line", "offset"}}, Example: `{"path":"report.md"}`,
	})
)

// Limits of file_read.
const (
	maxChars   = 15_000
	maxRaw     = 5 << 20 // bytes
	sniffBytes = 4 << 10 // bytes searched for a NUL
)

type readArgs struct {
	Path      string `json:"path" jsonschema:"relative or absolute"`
	StartLine int    `json:"start_line,omitempty"`
	EndLine   int    `json:"end_line,omitempty"`
	Limit     int    `json:"limit,omitempty" jsonschema:"lines, instead of end_line"`
	TailLines int    `json:"tail_lines,omitempty"`
	MaxChars  int    `json:"max_chars,omitempty"`
	MaxDepth  int    `json:"max_depth,omitempty"`
	Since     string `json:"since,omitempty" jsonschema:"of a listing: a time or 24h"`

	SheetName  string `json:"sheet_name,omitempty"`
	MaxRows    int    `json:"max_rows,omitempty"`
	MaxColumns int    `json:"max_columns,omitempty"`

	StartPage int `json:"start_page,omitempty" jsonschema:"of a PDF"`

	paged bool // a start after the last line returns an empty range
	page  bool // Limit is a default, so lines after it count as truncated
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
	Encoding        string `json:"encoding,omitempty"` // "" for UTF-8
}

// paged describes how a long result is shortened for a small context: by its numbered lines.
func paged(start string) tool.Paging {
	return tool.Paging{Field: "text", Start: start, Next: "next_start_line"}
}

func (f *files) read(ctx context.Context, _ tool.Invocation, a readArgs) (tool.Envelope, error) {
	e, err := f.readPath(ctx, a)
	if err != nil {
		return failureOf(a.Path, err)
	}
	return e, nil
}

func (f *files) readPath(ctx context.Context, a readArgs) (tool.Envelope, error) {
	file, err := f.roots.Open(a.Path)
	switch {
	case isNotFound(err):
		return tool.Envelope{}, f.notFoundWithCandidates(ctx, a.Path, err.Error())
	case err != nil:
		return tool.Envelope{}, err
	}
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return tool.Envelope{}, err
	}
	if a.SheetName != "" && (info.IsDir() || !isWorkbook(a.Path)) {
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "%s is not a spreadsheet (.xlsx), so it has no sheets; leave sheet_name out", a.Path).WithField("sheet_name", "no value")
	}
	if info.IsDir() {
		return f.list(a)
	}
	// Pictures are recognized by their content, not by their name.
	if e, is, err := picture(file, a.Path, info.Size()); is {
		return e, err
	}
	if e, is, err := f.preview(ctx, file, a, info.Size()); is {
		return e, err
	}

	content, err := readAll(file, a.Path)
	if err != nil {
		return tool.Envelope{}, err
	}
	text, encoding, is := decode(content)
	if !is {
		return tool.Envelope{}, notText(a.Path)
	}
	return f.selectLines(a, f.hidden(text), encoding)
}

// decodeText reads a text file that is to be changed. It accepts only UTF-8, because a change could
// destroy letters in other encodings.
func decodeText(file *os.File, shown string) (string, error) {
	content, err := readAll(file, shown)
	if err != nil {
		return "", err
	}

	if isBinary(content) || !utf8.ValidString(content) {
		if _, encoding, is := decode(content); is {
			return "", tool.RefusePath(tool.KindRejected, "%s is not a text file in UTF-8 but in %s, and the file tools change only UTF-8; write the changed text to a new file", shown, encoding)
		}
		return "", notText(shown)
	}

	return content, nil
}

func notText(shown string) error {
	return tool.RefusePath(tool.KindRejected, "%s is not a text file in UTF-8, UTF-16 or Windows-1252", shown)
}

// isBinary reports whether the beginning of content has a NUL.
func isBinary[T string | []byte](content T) bool {
	return slices.Contains([]byte(content[:min(len(content), sniffBytes)]), 0)
}

// decode returns the text of a file without a byte order mark, and the name of its encoding, which
// is "" for UTF-8. It supports the encodings of db_import. Windows-1252 with control characters is
// not text.
func decode(content string) (text, encoding string, is bool) {
	if utf8.ValidString(content) {
		return strings.TrimPrefix(content, "\ufeff"), "", !isBinary(content)
	}

	text, encoding, err := tabular.Decode(content, true)
	// Text files may have tabs, line ends, form feeds, terminal escapes and the DOS end mark.
	isControl := func(r rune) bool {
		return r < ' ' && !strings.ContainsRune("\t\n\v\f\r\x1a\x1b", r) || r == 0x7f
	}
	if err != nil || encoding == tabular.Windows1252 && strings.ContainsFunc(text, isControl) {
		return "", "", false
	}
	return text, encoding, true
}

// readAll returns the content of a file. It fails if the file is larger than maxRaw.
func readAll(file *os.File, shown string) (string, error) {
	// One extra byte is read to detect a file that is too large or has grown since Stat.
	all, err := io.ReadAll(io.LimitReader(file, maxRaw+1))
	if err == nil && len(all) > maxRaw {
		err = tool.RefusePath(tool.KindRejected, "%s has more than the %d bytes that the file tools take", shown, maxRaw)
	}
	return string(all), err
}

// lineEnd returns \r for a text with only \r line ends, and \n for any other text, including \r\n.
func lineEnd(text string) string {
	if strings.Contains(text, "\r") && !strings.Contains(text, "\n") {
		return "\r"
	}
	return "\n"
}

// selectLines returns the requested lines, as many as fit.
func (f *files) selectLines(a readArgs, content, encoding string) (tool.Envelope, error) {
	end := lineEnd(content)
	all := strings.Split(strings.TrimSuffix(content, end), end)
	if content == "" {
		all = nil // Split returns one line for an empty text
	}
	from, to, err := lineRange(a, len(all))
	if err != nil {
		return tool.Envelope{}, err
	}

	most := maxChars
	if a.MaxChars > 0 {
		most = min(a.MaxChars, maxChars)
	}

	res := readResult{Kind: "file", Path: a.Path, TotalLines: len(all), EndsWithNewline: strings.HasSuffix(content, end), Encoding: encoding}
	var out strings.Builder
	var warnings []string
	if encoding != "" {
		warnings = append(warnings, fmt.Sprintf("%s is in %s, not in UTF-8; file tools read it, and refuse to change it", a.Path, encoding))
	}
	used, next := 0, from
	for ; next <= to; next++ {
		line := numberLine(next, all[next-1])
		n := utf8.RuneCountInString(line)
		if used+n > most && used > 0 {
			break
		}

		if n > most { // otherwise a line longer than the limit would never be shown
			line = text.Truncate(f.redact(line), most) + "\n"
			res.Truncated = true
			warnings = append(warnings, fmt.Sprintf("line %d has %d characters; only its beginning is shown", next, utf8.RuneCountInString(all[next-1])))
		}

		out.WriteString(line)
		used += n
	}

	res.Text = out.String()
	switch {
	case next <= to:
		res.Truncated, res.NextStartLine, res.NextEndLine = true, next, to
	case a.page && next <= len(all):
		res.Truncated, res.NextStartLine = true, next
	}

	return tool.Success(res, warnings...), nil
}

// numberLine puts a line's number in front of it: six characters, |, no space.
func numberLine(n int, line string) string {
	return fmt.Sprintf("%6d|%s\n", n, strings.TrimSuffix(line, "\r"))
}

// lineRange returns the range of lines that a call requests, from 1, both ends included. For an
// empty file, line 1 is a valid start.
func lineRange(a readArgs, total int) (from, to int, err error) {
	refuse := func(field, expected, format string, args ...any) (int, int, error) {
		return 0, 0, tool.Refuse(tool.KindInvalidArgs, format, args...).WithField(field, expected)
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
		to = from + min(a.Limit, total-from+1) - 1 // avoids an overflow with huge numbers
	}

	return from, to, nil
}

// defaultPage is the number of lines that read_file shows if the call has no limit.
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

// readArgs returns the arguments for file_read. If no end is given, they request one page.
func (a readAliasArgs) readArgs() readArgs {
	r := readArgs{Path: a.Path, StartLine: cmp.Or(a.Offset, a.StartLine), EndLine: a.EndLine, Limit: a.Limit, TailLines: a.TailLines, MaxChars: a.MaxChars,
		MaxDepth: a.MaxDepth, SheetName: a.SheetName, MaxRows: a.MaxRows, MaxColumns: a.MaxColumns, StartPage: a.StartPage, paged: true}
	if r.EndLine == 0 && r.TailLines == 0 && r.Limit == 0 {
		r.Limit, r.page = defaultPage, true
	}
	return r
}

// readAlias implements read_file, which is file_read with other line numbers.
func (f *files) readAlias(ctx context.Context, in tool.Invocation, a readAliasArgs) (tool.Envelope, error) {
	if a.Offset > 0 && a.StartLine > 0 && a.Offset != a.StartLine {
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "offset and start_line are the same; give one of them").WithField("offset", "")
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
}

// renderPage converts a result of file_read to one of read_file, with other line numbers and a
// header. from is the first line if the text is empty.
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
				from = n // with tail_lines, the first line is known only here
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
