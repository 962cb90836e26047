package yaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// parse builds the tree of a file. It returns nil after problems that prevent this.
func (d *decoder) parse(path string, text []byte) *node {
	at := config.Position{File: path, Line: 1, Column: 1}
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	if err := decodeSafely(dec, &doc); errors.Is(err, io.EOF) {
		d.Problem(at, "", "the file is empty").Hint = "write a configuration with: rouse init"
		return nil
	} else if err != nil {
		d.syntax(at, err)
		return nil
	}

	if err := decodeSafely(dec, &more); err == nil {
		d.Problem(config.Position{File: path, Line: more.Line, Column: more.Column}, "", "a second document begins here; a configuration is one document")
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
		d.Problem(n.at, "", "the file must be a mapping of keys, not %s", n)
		return nil
	}

	return n
}

// decodeSafely converts panics of the parser to errors.
func decodeSafely(dec *yaml.Decoder, into *yaml.Node) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the YAML cannot be parsed: %v", p)
		}
	}()
	return dec.Decode(into)
}

func (d *decoder) syntax(at config.Position, err error) {
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
		message = "an alias (*) has no anchor" // the name may be a secret that was not quoted
	}
	p := d.Problem(at, "", "this is not YAML: %s", message)
	switch {
	case strings.Contains(message, "cannot start any token"):
		p.Hint = "indent with spaces, not tabs, and quote texts that begin with @, ` or %"
	case strings.Contains(message, "mapping values are not allowed"):
		p.Hint = "quote texts that hold a colon and a space"
	case strings.Contains(message, "alias"):
		p.Hint = `quote texts that begin with *, like schedule: "*/5 * * * *"`
	}
}
