// Package trigger checks that the files that started a run still exist unchanged, and lists the
// files of a batch.
package trigger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/agent/condition"
	"rouse/agent/plan"
	"rouse/agent/runlog"
	"rouse/agent/tool"
	"rouse/internal/atomicfile"
	"rouse/internal/domain"
	"rouse/internal/fspath"
	"rouse/internal/hardlink"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/event"
	"rouse/internal/nofollow"
)

// Files checks the files that start runs, and writes the manifests of batches.
type Files struct {
	Ledger *ledger.Ledger
	Log    *slog.Logger
	Folder string // folder for manifests and for files that runs receive
}

// moveWait is the maximum time that a retried run waits for its file, which may be moved to another
// disk.
const moveWait = 5 * time.Minute

// droppedKind is the kind of the event that lists the dropped files of a batch.
const droppedKind = "files.left"

// droppedEvent is the content of this event. If Kept is true, the files stay in the list but cannot
// be read.
type droppedEvent struct {
	Attempt int           `json:"attempt"`
	Files   []droppedFile `json:"files"`
	Kept    bool          `json:"kept"`
}

type droppedFile struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// CheckFile checks that the file that started a run still exists unchanged. If not, it returns an
// early end.
func (r Files) CheckFile(ctx context.Context, t *plan.Attempt) error {
	f, why, err := r.locateFile(ctx, t, *t.Detail.File)
	switch {
	case err != nil:
		return err
	case why != "":
		return plan.EndEarly(domain.OutcomeSkipped, "the file %s %s", f.Path, why)
	}

	t.Detail.File = &f
	return nil
}

// CheckBatch checks the files of a batch. The run starts without missing or changed files. All
// attempts keep this list, because the keys of a playbook's calls contain positions in it.
func (r Files) CheckBatch(ctx context.Context, t *plan.Attempt) error {
	left, fixed, err := r.DroppedBefore(ctx, t)
	if err != nil {
		return err
	}

	var files []plan.BatchFile
	var missed []droppedFile
	for _, accepted := range t.Detail.Files {
		if left[accepted.Path] {
			continue
		}

		f, why, err := r.locateFile(ctx, t, accepted)
		switch {
		case err != nil:
			return err
		case why == "":
			files = append(files, plan.NewBatchFile(f, false))
			continue
		}

		// After a playbook has made calls, a missing file keeps its place in the list.
		missed = append(missed, droppedFile{accepted.Path, why})
		if fixed {
			files = append(files, plan.NewBatchFile(f, true))
		}
	}

	if len(missed) > 0 && !fixed {
		if err := r.release(ctx, t.Run, t.Try, t.Detail.Files, missed); err != nil {
			return err
		}
	}

	if len(missed) > 0 {
		if err := runlog.AppendEvent(ctx, r.Ledger, t.Run, droppedKind, droppedEvent{t.Try.Number, missed, fixed}); err != nil {
			return err
		}
	}

	t.Files = files
	switch n := len(t.Detail.Files); {
	case len(files) > 0:
		return nil
	case n == 1 && len(missed) == 1:
		return plan.EndEarly(domain.OutcomeSkipped, "the file %s %s", missed[0].Path, missed[0].Why)
	case len(missed) > 0:
		return plan.EndEarly(domain.OutcomeSkipped, "none of the %d files is left: %s %s, and so on", n, missed[0].Path, missed[0].Why)
	default: // an earlier attempt has recorded why
		return plan.EndEarly(domain.OutcomeSkipped, "none of the %d files is left", n)
	}
}

// release gives up the claims of dropped files, so that they can start another run.
func (r Files) release(ctx context.Context, run ledger.Run, a ledger.Attempt, files []ledger.File, missed []droppedFile) error {
	var claims []claim.Claim
	for _, f := range files {
		if slices.ContainsFunc(missed, func(m droppedFile) bool { return m.Path == f.Path }) {
			claims = append(claims, claim.Claim{Job: run.Job, Path: filepath.ToSlash(f.Path), Hash: f.Hash})
		}
	}
	return r.Ledger.Claims.Release(ctx, a, claims...)
}

// DroppedBefore returns the files that earlier attempts dropped, and whether the list can no longer
// change.
func (r Files) DroppedBefore(ctx context.Context, t *plan.Attempt) (left map[string]bool, fixed bool, err error) {
	left = map[string]bool{}
	if t.Try.Number == 1 {
		return left, false, nil
	}

	events, err := r.Ledger.Events.List(ctx, event.Filter{Run: t.Run.ID, Limit: -1})
	if err != nil {
		return nil, false, err
	}
	for _, e := range events {
		switch e.Kind {
		case "call.started":
			fixed = t.Job.Playbook != nil || t.Job.Skill != nil
		case droppedKind:
			var l droppedEvent
			if err := json.Unmarshal(e.Data, &l); err != nil {
				return nil, false, fmt.Errorf("the record of the files of run %d is damaged: %w", t.Run.ID, err)
			}
			for _, f := range l.Files {
				left[f.Path] = left[f.Path] || !l.Kept
			}
		}
	}
	return left, fixed, nil
}

// locateFile finds the file of a run. An earlier end of the run may have moved it. why is the
// reason if the file is missing or has changed, or "".
func (r Files) locateFile(ctx context.Context, t *plan.Attempt, f ledger.File) (found ledger.File, why string, err error) {
	defer func() {
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case err != nil:
			err = plan.EndEarly(domain.OutcomeError, "the file %s cannot be read: %v", f.Path, err)
		}
	}()
	job := t.Run.Job
	if t.Detail.Retried {
		if err := r.awaitMove(ctx, job, f); err != nil {
			return f, "", err
		}
	}

	why, err = fileChanged(ctx, t.Plan.Boundary, f)
	if why == "" && err == nil {
		why, err = unreadable(&t.Task, f.Path)
		return f, why, err
	}

	// An earlier end of this run may have moved the file. The claim contains the new path.
	claim, ok, lookErr := r.Ledger.Claims.Of(ctx, job, filepath.ToSlash(f.Path), f.Hash)
	if lookErr != nil {
		return f, "", lookErr
	}

	if ok && claim.Dest != "" && claim.Dest != f.Path {
		moved := f
		moved.Path = claim.Dest
		if elsewhere, err := fileChanged(ctx, t.Plan.Boundary, moved); elsewhere == "" && err == nil {
			why, err := unreadable(&t.Task, moved.Path)
			return moved, why, err
		}
	}

	return f, why, err
}

// unreadable returns why tools may not read a file, or "". They may not read a file with several
// hard links, unless it is in the agent's workdir.
func unreadable(t *plan.Task, path string) (string, error) {
	if slices.ContainsFunc(tool.WithResolvedLinks([]string{t.Agent.Workdir}), func(f string) bool { return fspath.Within(path, f) }) {
		return "", nil
	}

	f, err := t.Plan.Boundary.Open(path)
	if err != nil {
		return "is gone", condition.IgnoreNotExist(err)
	}
	defer f.Close()

	if names, err := hardlink.Count(f); err != nil || names <= 1 {
		return "", err
	}
	return "is a hard link by now, and its other name may lie anywhere, so that no run may read it; copy the file instead", nil
}

// awaitMove waits until the watcher has recorded where it moved the file of a retried run.
func (r Files) awaitMove(ctx context.Context, job string, f ledger.File) error {
	late := time.After(moveWait)
	for {
		changed := r.Ledger.Changed() // before reading, so that no change is missed
		taken, ok, err := r.Ledger.Claims.Of(ctx, job, filepath.ToSlash(f.Path), f.Hash)
		if err != nil || !ok || taken.After != claim.AfterPending {
			return err
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-late:
			return fmt.Errorf("it is still being moved after the run's earlier end, for longer than %s", moveWait)
		}
	}
}

// fileChanged returns why the file at a path is not the accepted file, or "" if it is.
func fileChanged(ctx context.Context, b nofollow.UntrustedDirs, f ledger.File) (string, error) {
	const changed = "has changed since it was accepted; what it holds now gets a run of its own"
	info, err := b.Stat(f.Path)
	link, linked := errors.AsType[*nofollow.LinkError](err)
	switch {
	case linked: // a link replaced the file or a folder above it
		return "cannot be reached: " + link.Error(), nil
	case err != nil:
		return "is gone", condition.IgnoreNotExist(err)
	case !info.Mode().IsRegular(): // reading a pipe could block forever
		return changed, nil
	case info.Size() == f.Size && info.ModTime().Equal(f.ModTime):
		return "", nil
	case info.Size() != f.Size:
		return changed, nil
	}

	hash, err := condition.ContentHash(ctx, b, f.Path)
	if err != nil || hash == f.Hash {
		return "", err
	}

	return changed, nil
}

// ManifestPath returns the path of a run's manifest.
func (r Files) ManifestPath(run int64) string {
	return filepath.Join(r.Folder, fmt.Sprintf("%d.json", run))
}

// WriteManifest writes the list of a batch's files. Each attempt writes the same list.
func (r Files) WriteManifest(t *plan.Attempt) (path string, err error) {
	text, err := manifest(t.Run, plan.Present(t.Files), t.Detail.More, t.Plan.Zone)
	if err != nil {
		return "", fmt.Errorf("the manifest of run %d cannot be made: %w", t.Run.ID, err)
	}

	path = r.ManifestPath(t.Run.ID)
	if err = os.MkdirAll(r.Folder, 0o700); err == nil {
		err = atomicfile.Write(path, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("the manifest of run %d cannot be written: %w", t.Run.ID, err)
	}

	return path, nil
}

// manifest returns the manifest as JSON with one file per line, so that it can be read in parts.
func manifest(run ledger.Run, files []ledger.File, more int, zone *time.Location) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // keep names readable
	fmt.Fprintf(&out, "{\n\"job\": %q,\n\"run\": \"%d\",\n\"files\": [\n", run.Job, run.ID)

	for i, f := range files {
		f.ModTime = f.ModTime.In(zone)
		if err := e.Encode(f); err != nil {
			return nil, err
		}
		if i < len(files)-1 {
			out.Truncate(out.Len() - 1)
			out.WriteString(",\n")
		}
	}

	fmt.Fprintf(&out, "],\n\"more\": %d\n}\n", more)
	return out.Bytes(), nil
}

// RemoveManifest removes the manifest at the end of an attempt. The next attempt writes it again.
func (r Files) RemoveManifest(t *plan.Attempt) {
	if t.Manifest == "" {
		return
	}
	if err := os.Remove(t.Manifest); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.Log.Warn("the manifest of a run could not be removed; it is tried again later", "run", t.Run.ID, "error", err)
	}
}

// SweepManifests removes the manifests and received files of runs that have finished or do not
// exist.
func (r Files) SweepManifests(ctx context.Context) error {
	entries, err := os.ReadDir(r.Folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}

	var errs []error
	for _, e := range entries {
		if info, err := e.Info(); err == nil && atomicfile.Unfinished(e.Name()) && time.Since(info.ModTime()) > time.Hour {
			errs = append(errs, os.Remove(filepath.Join(r.Folder, e.Name()))) // left by a process that died
			continue
		}

		text, _, _ := strings.Cut(e.Name(), ".")
		id, bad := strconv.ParseInt(text, 10, 64)
		if bad != nil {
			continue // not a file of a run
		}

		run, gone := r.Ledger.Runs.Get(ctx, id)
		switch {
		case errors.Is(gone, ledger.ErrNotFound) || gone == nil && run.State == domain.StateFinished:
			errs = append(errs, os.RemoveAll(filepath.Join(r.Folder, e.Name())))
		case gone != nil:
			return gone
		}
	}

	return errors.Join(append(errs, err)...)
}
