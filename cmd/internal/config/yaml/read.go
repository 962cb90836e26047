package yaml

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"rouse/cmd/internal/config"
)

// Options say what to read.
type Options struct {
	Path   string
	Text   []byte              // what to read in place of the file at Path, as if it were there; nil: the file
	Home   string              // of a flag; "" leaves it to the environment and the file
	Getenv func(string) string // nil means os.Getenv
	// Ollama finds a local model. It is called if no model and no key is configured. Optional.
	Ollama func() (model, address string, ok bool)
	// Secret finds what secret:NAME stands for; nil: nothing is set.
	Secret func(name string) (value string, set bool, err error)
	// HoldSecrets lets a missing secret hold only the jobs that need it (Config.Held), with a warning.
	HoldSecrets bool
}

var jobType = reflect.TypeFor[config.Job]()

// Read reads a configuration. The error says that the main file cannot be read; other problems are in the document.
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

// read fills the settings from a file and what it includes. The tree is nil after problems that leave none.
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

	// In this order: defaults apply to included jobs, and flags and the environment win over the file.
	d.include(root, root, []string{path}, cfg)
	d.overlayScalars(root)
	applyDefaults(d, root)
	d.value(root, "", reflect.ValueOf(cfg).Elem(), config.Field{})
	d.complete(cfg)
	return root, nil
}
