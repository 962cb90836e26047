package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"rouse/internal/atomicfile"
	"rouse/internal/nofollow"
)

// File is a file or a folder of a home that a backup has, beside its databases.
type File struct {
	Entry // without its sum; Bytes of a file are those that it has now
	Open  func() (io.ReadCloser, error)
}

// Files visits what a backup of a home has beside databases, secrets and the agents' workdirs. What is gone when it is opened is
// fs.ErrNotExist.
func Files(ctx context.Context, home string, configs []Config, visit func(File) error) error {
	w := &writer{Options: Options{Home: home, NoWork: true}, within: nofollow.NewBoundary(home), configs: map[string]Config{}}
	opened := func(c Config) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.Content)), nil }
	}
	n := 0
	for _, c := range configs {
		if rel, ok := w.below(c.Path); ok {
			w.configs[rel] = c
			continue
		}
		n++
		if err := visit(File{Entry{Path: configName(n, c.Path), Mode: 0o600, Bytes: int64(len(c.Content)), Of: c.Path, Redact: c.Redacted}, opened(c)}); err != nil {
			return err
		}
	}

	return w.walk(ctx, "", "", func(rel, as string, e fs.DirEntry) error {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		entry := Entry{Path: homePrefix + as, Folder: e.IsDir(), Mode: info.Mode().Perm(), ModTime: info.ModTime().UTC(), Was: was(as, e.Name())}
		if c, ok := w.configs[rel]; ok {
			entry.Of, entry.Redact, entry.Bytes = c.Path, c.Redacted, int64(len(c.Content))
			return visit(File{entry, opened(c)})
		}
		if !e.IsDir() {
			entry.Bytes = info.Size()
		}
		return visit(File{entry, func() (io.ReadCloser, error) { return w.within.Open(filepath.Join(home, filepath.FromSlash(rel))) }})
	}, func(string, string) {})
}

// Place is where a backup that is a folder has an entry; an error says that its path leads elsewhere.
func Place(dir string, e Entry) (string, error) {
	if err := checkPath(e.Path); err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.FromSlash(e.Path)), nil
}

// HomeEntry is the path in a backup of what lies below the home.
func HomeEntry(rel string) string { return homePrefix + rel }

// Finish makes a backup of a folder that holds all its entries: those without a sum are read for it.
func Finish(dir string, m Manifest) error {
	m.Format = format
	if m.LeftOut == nil {
		m.LeftOut = []LeftOut{}
	}
	for i, e := range m.Entries {
		if e.Folder || e.SHA256 != "" {
			continue
		}
		sum, n, err := fileSum(filepath.Join(dir, filepath.FromSlash(e.Path)))
		if err != nil {
			return err
		}
		m.Entries[i].SHA256, m.Entries[i].Bytes = sum, n
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, manifestName), text, os.FileMode(0o600))
}
