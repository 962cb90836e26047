package file

import (
	"context"
	_ "embed"
	"errors"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
)

//go:embed write.md
var writeText string

// maxContent bounds what file_write takes at once (OSA-32).
const maxContent = 30_000 // characters

const (
	modeAppend = "append"
	// maxAppendTries bounds how often an append begins again: a file that a program writes without a pause
	// would keep it for ever.
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
	Unchanged   bool   `json:"unchanged,omitempty"` // it held the same already
	Bytes       int    `json:"bytes"`
	Diff        string `json:"diff"`
	Risk        string `json:"risk_level"` // low, medium, high
	CanUndo     bool   `json:"can_undo"`
	OperationID string `json:"operation_id,omitempty"`
	DryRun      bool   `json:"dry_run,omitempty"`
}

var writeSpec = withEnum(core(changing("file_write", writeText, tool.WritesFiles)), map[string][]string{"mode": {"overwrite", modeAppend}})

func (f *files) writeTool(s tool.Spec) (tool.Tool, error) {
	s.Needs = tool.RefusingFirst(func(a writeArgs) *tool.Envelope { return tooLong(a.Content) }, s.Needs)
	return tool.Define(s, f.write)
}

const writeAliasText = "Write a text file as a whole, with the folders it needs. An existing file is replaced."

// tooLong answers a call with more content than is taken at once, nil when it is not.
func tooLong(content string) *tool.Envelope {
	n := utf8.RuneCountInString(content)
	if n <= maxContent {
		return nil
	}
	e := tool.Failure(tool.KindInvalidArgs, "the content has %d characters; write at most %d at once and append the rest", n, maxContent).WithField("content", "")
	return &e
}

func (f *files) write(ctx context.Context, in tool.Invocation, a writeArgs) (tool.Envelope, error) {
	if refused := tooLong(a.Content); refused != nil {
		return *refused, nil
	}
	if strings.ContainsRune(a.Content, 0) {
		return tool.Failure(tool.KindInvalidArgs, "the content holds a NUL character, which no text has").WithField("content", ""), nil
	}

	// What is appended is right whatever stands before it, so that somebody who changes the file outside of
	// the locks only makes it read again.
	for tries := 1; ; tries++ {
		e, err := f.writeOnce(ctx, in, a)
		if _, changed := errors.AsType[*changedError](err); changed && a.Mode == modeAppend && tries < maxAppendTries {
			continue
		}
		if err != nil {
			return failureOf(a.Path, err)
		}
		return e, nil
	}
}

// writeOnce reads the file and replaces it. A *changedError says that somebody else changed it in between.
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
		return tool.Failure(tool.KindRejected, "%s would have %d bytes, more than the %d that the file tools take", a.Path, len(text), maxRaw).WithField("content", ""), nil
	}

	res := writeResult{Path: a.Path, Created: c.old.info == nil, Unchanged: c.holds(text), Bytes: len(text), Diff: diff(a.Path, f.redact(c.old.text), f.redact(text)), Risk: c.risk(text), CanUndo: c.notUndoable == "", DryRun: a.DryRun}
	if a.DryRun {
		return tool.Success(res, c.warnings()...), nil
	}

	kind := ledger.FileWrite
	if res.Created {
		kind = ledger.FileCreate
	}
	if res.OperationID, err = f.apply(ctx, in, c, kind, text); err != nil {
		return tool.Envelope{}, err
	}

	return tool.Success(res, c.warnings()...), nil
}
