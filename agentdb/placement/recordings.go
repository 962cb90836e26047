package placement

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"rouse/internal/ledger/node"
)

// recordings is the prefix of the recordings of an agent's runs.
const recordings = "recordings/"

// UploadRecording uploads a recording so that other nodes can read it.
func (k *Manager) UploadRecording(ctx context.Context, agent, path string) error {
	home, err := k.o.Ledger.Nodes.AgentHome(ctx, agent, k.o.Node)
	if err != nil {
		return err
	}
	if home.Node != k.o.Node {
		return &node.AgentElsewhereError{Agent: agent, Node: home.Node}
	}

	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return k.o.Ledger.Nodes.AgentCopies(home).Put(ctx, recordings+filepath.Base(path), f, info.Size())
}

// Recording opens a recording by its file name. It returns fs.ErrNotExist if there is no such
// recording. The caller must close it.
func (k *Manager) Recording(ctx context.Context, agent, name string) (io.ReadCloser, error) {
	return k.o.Ledger.Nodes.AgentCopies(node.AgentHome{Agent: agent}).Get(ctx, recordings+name, 0, 0)
}

// SweepRecordings deletes the recordings of this node's agents for which gone returns true.
func (k *Manager) SweepRecordings(ctx context.Context, gone func(name string) (bool, error)) error {
	homes, err := k.o.Ledger.Nodes.AgentHomes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range homes {
		if h.Node != k.o.Node {
			continue
		}
		copies := k.o.Ledger.Nodes.AgentCopies(h)
		all, err := copies.List(ctx, recordings, "")
		if err != nil {
			return err
		}
		var names []string
		for _, o := range all {
			remove, err := gone(strings.TrimPrefix(o.Name, recordings))
			if err != nil {
				return err
			}
			if remove {
				names = append(names, o.Name)
			}
		}
		errs = append(errs, copies.Delete(ctx, names...))
	}
	return errors.Join(errs...)
}
