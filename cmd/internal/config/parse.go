package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"go.yaml.in/yaml/v4"

	"rouse/internal/nofollow"
	"rouse/internal/text"
)

// maxFile bounds a file that is read, in bytes.
const maxFile = 4 << 20

// readMain reads the main file of a configuration.
func readMain(path string) (text []byte, err error) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		text, err = readBounded(f, path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no configuration %s; write one with: rouse init", display(path))
	case err != nil:
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	return text, nil
}

func readBounded(f io.Reader, path string) ([]byte, error) {
	// One byte more, to tell a file of exactly the limit from a larger one.
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %s", display(path), Size(maxFile))
	}

	return text, nil
}

// readPlain reads a regular file. Only the main file may be another one, as in rouse --config <(…).
func readPlain(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a plain file", display(path))
	}

	f, err := (nofollow.Boundary{}).Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s", display(path))
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()

	return readBounded(f, path)
}

// parse makes a tree of a file; nil when there are problems that leave none.
func (d *decoder) parse(path string, text []byte) *node {
	at := Position{path, 1, 1}
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	if err := decodeSafely(dec, &doc); errors.Is(err, io.EOF) {
		d.problem(at, "", "the file is empty").Hint = "write a configuration with: rouse init"
		return nil
	} else if err != nil {
		d.syntax(at, err)
		return nil
	}

	if err := decodeSafely(dec, &more); err == nil {
		d.problem(Position{path, more.Line, more.Column}, "", "a second document begins here; a configuration is one document")
		return nil
	} else if !errors.Is(err, io.EOF) {
		d.syntax(at, err)
		return nil
	}

	top := &doc
	if doc.Kind == yaml.DocumentNode && len(doc.Content) > 0 {
		top = doc.Content[0]
	}

	b := &builder{d: d, file: path}
	n := b.node(top, "")
	if n.kind != mapping {
		d.problem(n.at, "", "the file must be a mapping of keys, not %s", n)
		return nil
	}

	return n
}

// decodeSafely survives what the parser does not.
func decodeSafely(dec *yaml.Decoder, into *yaml.Node) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the YAML cannot be parsed: %v", p)
		}
	}()
	return dec.Decode(into)
}

func (d *decoder) syntax(at Position, err error) {
	message := text.Collapse(err.Error())
	var wrong *yaml.LoadError
	if errors.As(err, &wrong) {
		if message = wrong.Message; wrong.Mark.Line > 0 {
			at.Line, at.Column = wrong.Mark.Line, max(wrong.Mark.Column, 1)
		}

		if wrong.ContextMsg != "" {
			message += " " + wrong.ContextMsg
		}

		if c := wrong.ContextMark.Line; c > 0 && c != at.Line {
			message += fmt.Sprintf(" that begins in line %d", c)
		}
	}

	if i := strings.Index(message, "unknown anchor"); i >= 0 {
		message = "an alias (*) has no anchor" // its name may be a secret that was not quoted
	}
	p := d.problem(at, "", "this is not YAML: %s", message)
	switch {
	case strings.Contains(message, "cannot start any token"):
		p.Hint = "indent with spaces, not tabs, and quote texts that begin with @, ` or %"
	case strings.Contains(message, "mapping values are not allowed"):
		p.Hint = "quote texts that hold a colon and a space"
	case strings.Contains(message, "alias"):
		p.Hint = `quote texts that begin with *, like schedule: "*/5 * * * *"`
	}
}
