package file

import (
	"context"
	_ "embed"
	"errors"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/internal/ledger/fileop"
)

var (
	//go:embed write.md
	writeText string

	writeSpec = changing("file_write", writeText, tool.Spec{
		Core: true, Enum: map[string][]string{"mode": {"overwrite", modeAppend}}, Example: `{"path":"out/report.md","content":"# Report\n"}`,
	})
)

// maxContent limits the number of characters in one call of file_write.
const maxContent = 30_000

const (
	modeAppend = "append"
	// maxAppendTries limits the retries of an append to a file that a program writes continuously.
	maxAppendTries = 50
)

type writeArgs struct {
	Path    string `json:"path"`
	Content string `json:"content" jsonschema:"at most 30,000 characters"`
	Mode    string `json:"mode,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
}

type writeResult struct {
	Path        string `json:"path"`
	Created     bool   `json:"created"`
	Unchanged   bool   `json:"unchanged,omitempty"` // the file already had this content
	Bytes       int    `json:"bytes"`
	Diff        string `json:"diff"`
	Risk        string `json:"risk_level"` // low, medium, high
	CanUndo     bool   `json:"can_undo"`
	OperationID string `json:"operation_id,omitempty"`
	DryRun      bool   `json:"dry_run,omitempty"`
}

const writeAliasText = "Write a text file as a whole, with the folders it needs. An existing file is replaced."

// writeNeed refuses content that is too long before the owner is asked to approve the call.
func (f *files) writeNeed(a writeArgs) (tool.Access, error) {
	return f.roots.WriteNeed(filepath.Clean(a.Path)), checkLength(a.Content)
}

func checkLength(content string) error {
	if n := utf8.RuneCountInString(content); n > maxContent {
		return tool.Refuse(tool.KindInvalidArgs, "the content has %d characters; write at most %d at once and append the rest", n, maxContent).WithField("content", "")
	}
	return nil
}

func (f *files) write(ctx context.Context, in tool.Invocation, a writeArgs) (tool.Envelope, error) {
	if err := checkLength(a.Content); err != nil {
		return tool.Envelope{}, err
	}
	if strings.ContainsRune(a.Content, 0) {
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "the content holds a NUL character, which no text has").WithField("content", "")
	}

	// Appended text is valid after any content, so a concurrent change only causes a retry.
	for tries := 1; ; tries++ {
		e, err := f.writeOnce(ctx, in, a)
		if errors.As(err, new(*changedError)) && a.Mode == modeAppend && tries < maxAppendTries {
			continue
		}
		if err != nil {
			return failureOf(a.Path, err)
		}
		return e, nil
	}
}

// writeOnce reads the file and replaces it. The error is a *changedError if the file was changed in
// between.
func (f *files) writeOnce(ctx context.Context, in tool.Invocation, a writeArgs) (tool.Envelope, error) {
	c, err := f.prepare(ctx, in, a.Path)
	if err != nil {
		return tool.Envelope{}, err
	}
	defer c.close()

	text := a.Content
	if a.Mode == modeAppend {
		text = c.old.text + a.Content
	}
	if len(text) > maxRaw {
		return tool.Envelope{}, tool.Refuse(tool.KindRejected, "%s would have %d bytes, more than the %d that the file tools take", a.Path, len(text), maxRaw).WithField("content", "")
	}

	res := writeResult{Path: a.Path, Created: c.old.info == nil, Unchanged: c.holds(text), Bytes: len(text), Diff: diff(a.Path, f.redact(c.old.text), f.redact(text)), Risk: c.risk(text), CanUndo: c.notUndoable == "", DryRun: a.DryRun}
	if a.DryRun {
		return tool.Success(res, c.warnings()...), nil
	}

	kind := fileop.Write
	if res.Created {
		kind = fileop.Create
	}
	if res.OperationID, err = f.apply(ctx, in, c, kind, text); err != nil {
		return tool.Envelope{}, err
	}

	return tool.Success(res, c.warnings()...), nil
}
