package file

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"rouse/agent/tool"
	"rouse/internal/ledger/fileop"
	"rouse/internal/text"
)

var (
	//go:embed edit.md
	editText string

	editSpec = changing("file_edit", editText, tool.Spec{
		Brief: "Replace old_string, which must be in the file exactly once, by new_string.", Synonyms: [][2]string{{"old_string", "old_text"}, {"new_string", "new_text"}},
		Example: `{"path":"report.md","old_string":"draft","new_string":"final"}`,
	})
)

// maxEdits limits the number of edits in one call.
const maxEdits = 100

type edit struct {
	Old        string `json:"old_string"`
	New        string `json:"new_string"`
	ReplaceAll bool   `json:"replace_all,omitempty"`
}

type editArgs struct {
	Path       string `json:"path"`
	Old        string `json:"old_string,omitempty"`
	New        string `json:"new_string,omitempty"`
	ReplaceAll bool   `json:"replace_all,omitempty"`
	Edits      []edit `json:"edits,omitempty"`
	DryRun     bool   `json:"dry_run,omitempty"`
}

type editResult struct {
	Path         string `json:"path"`
	Edits        int    `json:"edits"`
	Replacements int    `json:"replacements"`
	Diff         string `json:"diff"`
	Risk         string `json:"risk_level"` // low, medium, high
	CanUndo      bool   `json:"can_undo"`
	OperationID  string `json:"operation_id,omitempty"`
	DryRun       bool   `json:"dry_run,omitempty"`

	oldLines, newLines int // lines in all replaced places
}

const editAliasText = "Replace a text in a file. `old_text` must occur exactly once; take it from read_file without the line numbers, with enough lines around it to be unique."

type editAliasArgs struct {
	Path       string `json:"path"`
	Old        string `json:"old_text,omitempty"`
	New        string `json:"new_text,omitempty" jsonschema:"empty deletes"`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema:"replace old_text wherever it occurs"`
	Edits      []edit `json:"edits,omitempty" jsonschema:"up to 100 edits instead of one; each sees what those before it left, and all are made or none"`
	DryRun     bool   `json:"dry_run,omitempty" jsonschema:"show the difference and change nothing"`
}

type editAliasResult struct {
	Text        string `json:"text"`
	Path        string `json:"path"`
	OldLines    int    `json:"old_lines"`
	NewLines    int    `json:"new_lines"`
	Diff        string `json:"diff,omitempty"` // only for a dry run
	OperationID string `json:"operation_id,omitempty"`
}

// editAlias implements edit_file, which uses the editor of file_edit and reports numbers of lines.
func (f *files) editAlias(ctx context.Context, in tool.Invocation, a editAliasArgs) (tool.Envelope, error) {
	if len(a.Edits) == 0 && a.Old != "" && a.Old == a.New {
		n := lineCount(a.Old)
		return tool.Success(editAliasResult{Path: a.Path, OldLines: n, NewLines: n, Text: "no changes: old_text and new_text are the same"}), nil
	}

	done, warnings, err := f.edits(ctx, in, editArgs(a), "old_text", "new_text")
	if err != nil {
		return failureOf(a.Path, err)
	}
	r := editAliasResult{Path: a.Path, OldLines: done.oldLines, NewLines: done.newLines, OperationID: done.OperationID}
	did := "replaced"
	if a.DryRun {
		did, r.Diff = "would replace", done.Diff
	}
	r.Text = fmt.Sprintf("%s %s by %s in %s", did, text.Plural(r.OldLines, "line"), text.Plural(r.NewLines, "line"), a.Path)
	return tool.Success(r, warnings...), nil
}

func lineCount(text string) int {
	if text == "" {
		return 0
	}
	return strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1
}

func (f *files) edit(ctx context.Context, in tool.Invocation, a editArgs) (tool.Envelope, error) {
	done, warnings, err := f.edits(ctx, in, a, "old_string", "new_string")
	if err != nil {
		return failureOf(a.Path, err)
	}
	return tool.Success(done, warnings...), nil
}

// edits makes the edits of a call. older and newer are the tool's names for the two text arguments.
func (f *files) edits(ctx context.Context, in tool.Invocation, a editArgs, older, newer string) (res editResult, warnings []string, err error) {
	edits, fields := a.Edits, make([]string, len(a.Edits))
	for i := range edits {
		fields[i] = fmt.Sprintf("edits[%d].old_string", i)
		edits[i].ReplaceAll = edits[i].ReplaceAll || a.ReplaceAll // models set it on either level
	}

	refuse := func(field, expected, format string, args ...any) (editResult, []string, error) {
		return res, nil, tool.Refuse(tool.KindInvalidArgs, format, args...).WithField(field, expected)
	}
	switch {
	case len(edits) > 0 && (a.Old != "" || a.New != ""):
		return refuse("edits", "", "give %s and %s, or edits, not both", older, newer)
	case len(edits) > maxEdits:
		return refuse("edits", "", "there are %d edits; make at most %d at once", len(edits), maxEdits)
	case len(edits) == 0:
		edits, fields = []edit{{a.Old, a.New, a.ReplaceAll}}, []string{older}
	}

	for i, e := range edits {
		if e.Old == "" {
			return refuse(fields[i], "a text of the file", "%s is empty; give the text to replace, or write the whole file", fields[i])
		}
		if e.Old == e.New {
			return refuse(fields[i], "", "%s and its %s are the same: there is nothing to change", fields[i], newer)
		}
	}
	return f.applyEdits(ctx, in, a.Path, edits, fields, a.DryRun)
}

// applyEdits makes all edits in order, or none. fields names the argument of each edit.
func (f *files) applyEdits(ctx context.Context, in tool.Invocation, path string, edits []edit, fields []string, dry bool) (res editResult, warnings []string, err error) {
	c, err := f.prepare(ctx, in, path)
	if err != nil {
		return res, nil, err
	}
	defer c.close()

	if c.old.info == nil {
		return res, nil, f.notFoundWithCandidates(ctx, path, "there is no "+path)
	}

	res = editResult{Path: path, Edits: len(edits), CanUndo: c.notUndoable == "", DryRun: dry}
	now := c.old.text
	for i, e := range edits {
		next, n, wrong := e.in(now, f.redact)
		if wrong != "" {
			if i > 0 {
				wrong += fmt.Sprintf("; the %s before it would have been made, and nothing was changed", text.Plural(i, "edit"))
			}
			return res, nil, tool.Refuse(tool.KindInvalidArgs, "%s: %s", path, wrong).WithField(fields[i], "a text that is in the file once")
		}

		now, res.Replacements = next, res.Replacements+n
		res.oldLines, res.newLines = res.oldLines+n*lineCount(e.Old), res.newLines+n*lineCount(e.New)
		// Checked after each edit, because a batch with replace_all could multiply the text and
		// fill the memory.
		if len(now) > maxRaw {
			return res, nil, tool.RefusePath(tool.KindRejected, "%s would have more than the %d bytes that the file tools take", path, maxRaw)
		}
	}
	if strings.ContainsRune(now, 0) && !strings.ContainsRune(c.old.text, 0) {
		return res, nil, tool.Refuse(tool.KindInvalidArgs, "the new text holds a NUL character, which no text has").WithField(fields[0], "")
	}

	res.Diff, res.Risk = diff(path, f.redact(c.old.text), f.redact(now)), c.risk(now)
	if !dry {
		res.OperationID, err = f.apply(ctx, in, c, fileop.Edit, now)
	}
	return res, c.warnings(), err
}

// in applies an edit to a text. wrong is the reason why it cannot be applied.
func (e edit) in(text string, redact func(string) string) (out string, n int, wrong string) {
	n = strings.Count(text, e.Old)
	// file_read does not show line ends, so the edit is also tried with the line ends of the file.
	end := lineEnd(text)
	if strings.Contains(text, "\r\n") {
		end = "\r\n"
	}
	if n == 0 && end != "\n" && !strings.Contains(e.Old, end) {
		e.Old, e.New = strings.ReplaceAll(e.Old, "\n", end), strings.ReplaceAll(strings.ReplaceAll(e.New, "\r\n", "\n"), "\n", end)
		n = strings.Count(text, e.Old)
	}

	switch {
	case n == 0:
		return "", 0, diagnose(text, e.Old, redact)
	case n > 1 && !e.ReplaceAll:
		return "", 0, fmt.Sprintf("the text occurs %d times, %s; give more of the lines around it, or say replace_all", n, occurrences(text, e.Old))
	}

	return strings.ReplaceAll(text, e.Old, e.New), n, ""
}

// occurrences returns the numbers of the lines in which part begins.
func occurrences(text, part string) string {
	const most = 10
	var lines []string
	for line, from := 1, 0; ; {
		at := strings.Index(text[from:], part)
		if at < 0 {
			break
		}

		if len(lines) == most {
			lines = append(lines, "…") // the other occurrences are not counted
			break
		}

		line += strings.Count(text[from:from+at], "\n")
		lines = append(lines, strconv.Itoa(line))
		line += strings.Count(part, "\n")
		from += at + len(part)
	}

	return "in lines " + strings.Join(lines, ", ")
}

// Limits of a diff in a result.
const (
	maxDiffLines = 80
	maxDiffChars = 12_000
)

// changedRange returns the range of whole lines in old that contains all differences from text.
// Comparing only this range keeps the diff of a small change in a large file fast.
func changedRange(old, text string) (from, to int) {
	n := min(len(old), len(text))
	same := 0
	for same < n && old[same] == text[same] {
		same++
	}

	from = strings.LastIndexByte(old[:same], '\n') + 1
	end := 0
	for end < n-from && old[len(old)-1-end] == text[len(text)-1-end] {
		end++
	}

	to = len(old) - end
	if at := strings.IndexByte(old[to:], '\n'); at >= 0 && to > from {
		return from, to + at + 1
	}
	if to == from && len(text)-end == from { // the texts are equal
		return from, to
	}

	return from, len(old)
}

// diff returns a unified diff, cut to a readable size.
func diff(path, old, now string) string {
	name := strings.TrimPrefix(filepath.ToSlash(path), "/")
	from, to := changedRange(old, now)
	edits := udiff.Lines(old[from:to], now[from:len(now)-(len(old)-to)])
	// The positions of the edits are relative to the compared range.
	for i := range edits {
		edits[i].Start, edits[i].End = edits[i].Start+from, edits[i].End+from
	}

	d, err := udiff.ToUnified("a/"+name, "b/"+name, old, edits, udiff.DefaultContextLines)
	if err != nil {
		return fmt.Sprintf("the difference cannot be shown: %v", err)
	}

	lines := strings.SplitAfter(strings.TrimSuffix(d, "\n"), "\n")
	if len(lines) > maxDiffLines {
		left := len(lines) - maxDiffLines + 1
		d = strings.Join(lines[:maxDiffLines-1], "") + fmt.Sprintf("… %d more lines\n", left)
	}

	if utf8.RuneCountInString(d) > maxDiffChars {
		d = text.Truncate(d, maxDiffChars-1) + "\n"
	}

	return d
}
