package eval

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent"
	"rouse/agentdb/pool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// Worker is the only agent of a world.
const Worker = "worker"

// World is a folder in which an agent works, with its own working folder, ledger and databases.
// Runs in a World cannot reach beyond its folder.
type World struct {
	Ledger *ledger.Ledger
	Runner *agent.Runner
	Work   string // working folder
	pool   *pool.Pool
}

// Open creates a world in dir. It creates dir, or dir must be empty. files are the files of the
// working folder, by their slash-separated paths. The caller must close the world.
func Open(ctx context.Context, dir string, files map[string]string) (_ *World, err error) {
	if err := requireEmpty(dir); err != nil {
		return nil, err
	}

	w := &World{Work: filepath.Join(dir, "work")}
	for name, text := range files {
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, fmt.Errorf("the file %q is not below the working folder; name it by its path from there", name)
		}
		path := filepath.Join(w.Work, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}

	if w.Ledger, err = ledger.Open(ctx, ledger.Options{Path: filepath.Join(dir, "ledger.db"), Blobs: filepath.Join(dir, "blobs")}); err != nil {
		return nil, err
	}
	if w.pool, err = pool.New(pool.Options{Dir: filepath.Join(dir, "agents")}); err != nil {
		return nil, errors.Join(err, w.Ledger.Close())
	}
	if w.Runner, err = agent.New(agent.Options{Ledger: w.Ledger, Databases: w.pool, Manifests: filepath.Join(dir, "manifests"), Scratch: filepath.Join(dir, "commands"), Storage: filepath.Join(dir, "storage")}); err != nil { //nolint:contextcheck // it cleans up after a process that died, which a new folder has none of
		return nil, errors.Join(err, w.pool.Close(), w.Ledger.Close())
	}
	return w, nil
}

// requireEmpty returns an error if a folder is not empty. The folder may contain a user's work, or
// the home of a daemon.
func requireEmpty(dir string) error {
	found, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.MkdirAll(dir, 0o700)
	case err != nil:
		return err
	case len(found) > 0:
		return fmt.Errorf("%s is not empty: a scenario needs an empty folder, so that it cannot overwrite anybody's work", dir)
	}

	return nil
}

// Close closes the ledger and the databases. The folder remains.
func (w *World) Close() error { return errors.Join(w.pool.Close(), w.Ledger.Close()) }

// Play makes attempts at a run until it ends, or until it asks a question that answer does not
// answer. It returns the run in its last state.
func (w *World) Play(ctx context.Context, asked ledger.Request, answer func(inbox.Item) (text string, ok bool)) (ledger.Run, error) {
	queued, err := w.Ledger.Enqueue(ctx, asked)
	if err != nil {
		return ledger.Run{}, err
	}

	for {
		run, a, err := w.Ledger.StartAttempt(ctx, queued[0].Run)
		if err != nil {
			return run, err
		}

		res, err := w.Runner.Execute(ctx, run, a)
		if err != nil {
			return run, err
		}
		// Recorded even after an interruption, so that the folder shows the history.
		if err := w.Ledger.Finish(context.WithoutCancel(ctx), a, res); err != nil {
			return run, err
		}
		if run, err = w.Ledger.Runs.Get(ctx, run.ID); err != nil || run.State == domain.StateFinished {
			return run, err
		}

		items, err := w.Ledger.Inbox.List(ctx)
		if err != nil {
			return run, err
		}
		at := slices.IndexFunc(items, func(i inbox.Item) bool { return i.Run == run.ID })
		if at < 0 {
			return run, nil
		}
		text, ok := answer(items[at])
		if !ok {
			return run, nil
		}
		if run, err = w.Ledger.Answer(ctx, items[at].ID, text); err != nil || run.State == domain.StateFinished {
			return run, err
		}
	}
}

// CompareFiles compares files of the working folder with the expected contents, ignoring
// surrounding space. It returns the differences.
func (w *World) CompareFiles(want map[string]string) (problems []string, err error) {
	if len(want) == 0 {
		return nil, nil
	}
	// A file created by an agent may be a link to anywhere.
	root, err := os.OpenRoot(w.Work)
	if err != nil {
		return nil, err
	}
	defer root.Close()

	for _, name := range slices.Sorted(maps.Keys(want)) {
		got, err := root.ReadFile(filepath.FromSlash(name))
		text := strings.TrimSpace(want[name])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, fmt.Sprintf("there is no file %s, wanted one that holds %q", name, text))
		case err != nil:
			return nil, err
		case strings.TrimSpace(string(got)) != text:
			problems = append(problems, fmt.Sprintf("the file %s holds %q, wanted %q", name, strings.TrimSpace(string(got)), text))
		}
	}
	return problems, nil
}
