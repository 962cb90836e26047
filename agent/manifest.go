package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/atomicfile"
	"rouse/internal/domain"
)

// manifestPath is where the files of a run are listed.
func (r *Runner) manifestPath(run int64) string {
	return filepath.Join(r.manifests, fmt.Sprintf("%d.json", run))
}

// writeManifest lists the files of a batch where the run's tools can read it. It holds no
// more than the run's record does, so that each attempt writes the same.
func (r *Runner) writeManifest(t *attempt) (path string, err error) {
	text, err := manifest(t.run, present(t.files), t.detail.More, t.zone)
	if err != nil {
		return "", fmt.Errorf("the manifest of run %d cannot be made: %w", t.run.ID, err)
	}

	path = r.manifestPath(t.run.ID)
	if err = os.MkdirAll(r.manifests, 0o700); err == nil {
		err = atomicfile.Write(path, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("the manifest of run %d cannot be written: %w", t.run.ID, err)
	}

	return path, nil
}

// manifest is a JSON text with a file in a line, so that it can be read in parts.
func manifest(run ledger.Run, files []ledger.File, more int, zone *time.Location) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // a name is to be read as it is
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

// removeManifest comes at the end of each attempt: the next one writes it again.
func (r *Runner) removeManifest(t *attempt) {
	if t.manifest == "" {
		return
	}
	if err := os.Remove(t.manifest); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.log.Warn("the manifest of a run could not be removed; it is tried again later", "run", t.run.ID, "error", err)
	}
}

// Sweep removes the manifests and received files of runs that have ended, and the
// recordings of runs that are no longer kept.
func (r *Runner) Sweep(ctx context.Context) error {
	return errors.Join(r.sweepManifests(ctx), r.sweepRecordings(ctx))
}

func (r *Runner) sweepManifests(ctx context.Context) error {
	entries, err := os.ReadDir(r.manifests)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}

	var errs []error
	for _, e := range entries {
		if info, err := e.Info(); err == nil && atomicfile.Unfinished(e.Name()) && time.Since(info.ModTime()) > time.Hour {
			errs = append(errs, os.Remove(filepath.Join(r.manifests, e.Name()))) // its process died
			continue
		}

		text, _, _ := strings.Cut(e.Name(), ".")
		id, bad := strconv.ParseInt(text, 10, 64)
		if bad != nil {
			continue // not ours
		}

		run, gone := r.ledger.Run(ctx, id)
		switch {
		case errors.Is(gone, ledger.ErrNotFound) || gone == nil && run.State == domain.StateFinished:
			errs = append(errs, os.RemoveAll(filepath.Join(r.manifests, e.Name())))
		case gone != nil:
			return gone
		}
	}

	return errors.Join(append(errs, err)...)
}
