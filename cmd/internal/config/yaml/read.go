package yaml

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"rouse/cmd/internal/config"
)

// Options configures how a configuration is read.
type Options struct {
	Path string
	// Text replaces the content of the file at Path. If nil, the file is read.
	Text []byte
	// Home is the value of the --home flag. If empty, the environment or the file sets the home.
	Home   string
	Getenv func(string) string // if nil, os.Getenv
	// Ollama finds a local model. It is called if no model and no key is configured. Optional.
	Ollama func() (model, address string, ok bool)
	// Secret returns the value of secret:NAME. If nil, no secret is set.
	Secret func(name string) (value string, set bool, err error)
	// HoldSecrets lets a missing secret block only the jobs that need it, with a warning. See
	// Config.Held.
	HoldSecrets bool
}

var jobType = reflect.TypeFor[config.Job]()

// Read reads a configuration. It returns an error if the main file cannot be read. Other problems
// are in the document.
func Read(o Options) (*Document, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}

	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("the configuration %s: %w", o.Path, err)
	}

	d := newDecoder(o.Getenv)
	d.Options = o
	root, err := d.read(path, d.Config)
	if root != nil {
		d.root = root
	}
	return d.Document, err
}

// read fills the settings from a file and its includes. The tree is nil if the file cannot be
// parsed.
func (d *decoder) read(path string, cfg *config.Config) (*node, error) {
	from := config.ReadMain
	if d.Text != nil {
		from = func(string) ([]byte, error) { return d.Text, nil }
	}
	text, err := cfg.Sources.Read(path, from)
	if err != nil {
		return nil, err
	}

	cfg.Files = []string{path}
	d.Origins = append(d.Origins, Origin{What: "the configuration", Path: path})
	root := d.parse(path, text)
	if root == nil {
		return nil, nil
	}
	d.root = root

	// The order matters: defaults apply to included jobs, and flags and variables override the
	// file.
	d.include(root, root, []string{path}, cfg)
	d.overlayScalars(root)
	applyDefaults(d, root)
	d.value(root, "", reflect.ValueOf(cfg).Elem(), config.Field{})
	d.complete(cfg)
	return root, nil
}
