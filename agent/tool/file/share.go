package file

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/text"
)

//go:embed share.md
var shareText string

// Limits of what is shared.
const (
	maxShared      = 32 << 20  // bytes of an artifact
	maxSharedOfRun = 256 << 20 // bytes of all of a run
	maxName        = 200       // bytes
)

type shareArgs struct {
	Path        string `json:"path,omitempty"`
	Content     string `json:"content,omitempty"`
	Filename    string `json:"filename,omitempty" jsonschema:"without a folder"`
	Description string `json:"description,omitempty" jsonschema:"in a line"`
}

type shareResult struct {
	Artifact    string `json:"artifact"` // its number
	Filename    string `json:"filename"`
	Version     int    `json:"version"`
	Size        int64  `json:"size"` // bytes
	Hash        string `json:"sha256"`
	Description string `json:"description,omitempty"`
}

// shareSpec is share_artifact (OSA-19). It changes only the ledger, which accepts a call once: what a
// resumed attempt repeats is not shared again. It is not a reading tool, so that a reduction cannot call
// it.
var shareSpec = tool.Spec{
	Name: "share_artifact", Description: shareText, Effect: domain.EffectDatabase, Class: tool.ClassOther, Scope: tool.ScopeAgent, Writes: tool.WritesArtifact,
	OnDemand: true,
}

func (f *files) shareTool(s tool.Spec) (tool.Tool, error) {
	s.Needs = tool.RefusingFirst(f.checkShare, s.Needs)
	return tool.Define(s, f.share)
}

// name is what an artifact is called.
func (a shareArgs) name() string {
	if a.Filename == "" {
		return filepath.Base(a.Path)
	}
	return a.Filename
}

// checkShare returns the answer to a call that cannot be served, or nil.
func (f *files) checkShare(a shareArgs) *tool.Envelope {
	if f.contentOnly && a.Path != "" {
		e := tool.Failure(tool.KindInvalidArgs, "this agent has no files: give content with a filename").WithField("path", "")
		return &e
	}
	return a.check()
}

// check answers a call that says too little, or too much, whatever the file holds; nil when it does not.
func (a shareArgs) check() *tool.Envelope {
	wrong := func(field, expected, format string, args ...any) *tool.Envelope {
		e := tool.Failure(tool.KindInvalidArgs, format, args...).WithField(field, expected)
		return &e
	}

	switch {
	case a.Path == "" && a.Content == "":
		return wrong("path", "a file, or content with a filename", "there is nothing to share: give path or content")
	case a.Path != "" && a.Content != "":
		return wrong("content", "", "give path or content, not both")
	case strings.Contains(a.Content, "---SHARED_ARTIFACT_START---") || strings.Contains(a.Content, "---SHARED_ARTIFACT_END---"):
		// Whoever reads results by these marks would take a part of the content for another artifact.
		return wrong("content", "the content alone", "the content holds a mark by which shared artifacts are found in texts (---SHARED_ARTIFACT_…---); leave it out, or share a file by its path")
	case a.Content != "" && a.Filename == "":
		return wrong("filename", "a name like report.md", "content needs a filename")
	case !isFileName(a.name()) && (a.Filename != "" || !isRelativeTop(a.Path)):
		return wrong("filename", fmt.Sprintf("a name like report.md of at most %d bytes", maxName), "%q is not the name of a file without a folder", a.name())
	}
	return nil
}

func (f *files) share(ctx context.Context, in tool.Invocation, a shareArgs) (tool.Envelope, error) {
	if refused := f.checkShare(a); refused != nil {
		return *refused, nil
	}

	// Redacted before and after: expanding what looks like \n could change the middle of a secret, so
	// that it would not be recognized any more.
	a.Content = f.redact(a.Content)
	name, content, warnings, refusal := f.contentToShare(ctx, a)
	if refusal != nil {
		return *refusal, nil
	}

	if whole, err := f.sharedBytes(ctx, in.Run); err != nil {
		return tool.Envelope{}, err
	} else if whole+int64(len(content)) > maxSharedOfRun {
		return tool.Failure(tool.KindRejected, "this run has shared %d bytes, and at most %d are kept of one", whole, maxSharedOfRun), nil
	}

	// What is not text has no form in which a secret would be recognized, and could be damaged.
	if text := string(content); utf8.Valid(content) {
		content = []byte(f.redact(text))
	}

	kept, err := f.log.AddArtifact(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt},
		ledger.Artifact{Agent: in.Agent, Key: in.Key, Name: f.redact(name), Description: f.redact(text.Collapse(a.Description))}, content)
	if err != nil {
		return tool.Envelope{}, fmt.Errorf("what is shared cannot be kept: %w", err)
	}

	return tool.Success(shareResult{fmt.Sprint(kept.ID), kept.Name, kept.Version, kept.Size, kept.Hash, kept.Description}, warnings...), nil
}

// isRelativeTop reports whether a path is that of a folder by no name of its own, as . is.
func isRelativeTop(path string) bool {
	return path != "" && (filepath.Base(path) == "." || filepath.Base(path) == "..")
}

// isFileName reports whether a name is that of a file without a folder, and usable on every system.
func isFileName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= maxName && utf8.ValidString(name) &&
		!strings.ContainsAny(name, `/\`) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// sharedBytes is how much a run has shared so far.
func (f *files) sharedBytes(ctx context.Context, run int64) (n int64, err error) {
	all, err := f.log.Artifacts(ctx, run)
	for _, a := range all {
		n += a.Size
	}
	return n, err
}

// contentToShare reads what a call shares, and says what it is called; refusal says why it cannot be.
func (f *files) contentToShare(ctx context.Context, a shareArgs) (name string, content []byte, warnings []string, refusal *tool.Envelope) {
	name = a.name()
	refuse := func(e tool.Envelope) (string, []byte, []string, *tool.Envelope) { return "", nil, nil, &e }
	if a.Path == "" {
		text := a.Content
		// A model that escapes twice means line breaks. One that also writes real ones knows the
		// difference.
		if !strings.Contains(text, "\n") && strings.Contains(text, `\n`) {
			text = strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(text)
			warnings = append(warnings, `the content had no line breaks: each \n and \t in it became one, or a tab`)
		}
		if len(text) > maxShared {
			return refuse(tooLarge("the content"))
		}

		return name, []byte(text), warnings, nil
	}

	file, err := f.roots.Open(a.Path)
	var bad *tool.PathError
	if errors.As(err, &bad) && bad.Kind == tool.KindNotFound {
		e := f.notFoundWithCandidates(ctx, a.Path, bad)
		e.Kind = tool.KindExecutionError // as its contract has it
		return refuse(e)
	}

	if err != nil {
		return refuse(pathFailure(a.Path, err))
	}
	defer file.Close()

	info, err := file.Stat()
	if err == nil && info.IsDir() {
		content, warnings, refusal = f.folderToShare(ctx, a.Path)
		return f.folderName(a), content, warnings, refusal
	}

	var out bytes.Buffer
	if err == nil {
		_, err = io.Copy(&out, io.LimitReader(file, maxShared+1))
	}

	switch {
	case err != nil:
		return refuse(tool.Failure(tool.KindExecutionError, "%s cannot be copied: %v", a.Path, err).WithField("path", ""))
	case out.Len() > maxShared:
		return refuse(tooLarge(a.Path))
	}

	return name, out.Bytes(), nil, nil
}

func tooLarge(what string) tool.Envelope {
	return tool.Failure(tool.KindRejected, "%s has more than the %d bytes that can be shared as one; share a part of it, or tell where it is", what, maxShared)
}
