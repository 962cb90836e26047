package cases

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"rouse/agent/model/replay"
	"rouse/skills"
)

// The bounds of what is read.
const (
	maxCases = 500
	maxBytes = 4 << 20 // of one case
)

// Case is what a skill is given, and what has to come of it.
type Case struct {
	Name  string          `json:"-"`     // of its file
	About string          `json:"about"` // what it shows, for its readers
	Input json.RawMessage `json:"input"` // a JSON object; none: {}
	// Config are settings of the skill, as its owner would give them.
	Config map[string]any    `json:"config"`
	Files  map[string]string `json:"files"` // of the working folder, by path
	// File is the one of these that started the run, "" where none did.
	File string `json:"file"`
	// Workspace is the name of the one that the run works in; "": none, or one of any name where the skill needs it.
	Workspace string            `json:"workspace"`
	State     json.RawMessage   `json:"state"`    // of the workspace, before the run
	Secrets   map[string]string `json:"secrets"`  // values for the bindings of the skill, by name
	Commands  [][]string        `json:"commands"` // patterns of the programs that it may run, as in grants: commands
	Answers   []Answer          `json:"answers"`  // of the model
	Inbox     []Reply           `json:"inbox"`    // of its owner
	Expect    Want              `json:"expect"`
}

// Answer is what the model says to each request that contains something.
type Answer struct {
	Contains replay.Texts `json:"contains"` // none: whatever is asked
	Text     string       `json:"text"`
}

// Reply is what the owner answers once, to an item of the inbox whose title contains something.
type Reply struct {
	Title  string          `json:"title"`
	Answer json.RawMessage `json:"answer"` // a text, or an object where the item has a schema
}

// Want is what has to come of a case; what is not named may be anything.
type Want struct {
	Outcome string            `json:"outcome"` // "": success
	Output  json.RawMessage   `json:"output"`  // what it returned, where objects may hold more
	Message string            `json:"message"` // a part of its summary, or of its error
	Files   map[string]string `json:"files"`   // of the working folder: their contents, ignoring surrounding space
	State   json.RawMessage   `json:"state"`   // of the workspace, where objects may hold more
	// Artifacts of the workspace in their latest versions, each with at least one that is as it says.
	Artifacts []Artifact `json:"artifacts"`
}

// Artifact describes an artifact; what is "" or 0 may be anything.
type Artifact struct {
	Title    string `json:"title"`
	Type     string `json:"type"`
	Status   string `json:"status"`
	Version  int    `json:"version"`
	Contains string `json:"contains"` // a part of its content
}

// Read reads the cases of the skill in a folder, sorted by their names. The error names the file, and what is wrong there.
func Read(dir string) (out []Case, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() // by which no link leads out of the folder

	names, err := fs.Glob(root.FS(), skills.CasesFolder+"/*.json")
	if err != nil {
		return nil, err
	}
	if len(names) > maxCases {
		return nil, fmt.Errorf("%s has %d cases, and %d are the most", dir, len(names), maxCases)
	}

	slices.Sort(names)
	for _, name := range names {
		c, err := read(root, name)
		if err != nil {
			return nil, fmt.Errorf("the case %s: %w", name, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func read(root *os.Root, name string) (c Case, err error) {
	f, err := root.Open(name)
	if err != nil {
		return c, err
	}
	defer f.Close()

	raw, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return c, err
	}
	if len(raw) > maxBytes {
		return c, fmt.Errorf("is larger than %d MiB", maxBytes>>20)
	}
	return Parse(strings.TrimSuffix(path.Base(name), ".json"), raw)
}

// Parse reads a case.
func Parse(name string, raw []byte) (Case, error) {
	c := Case{Name: name}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields() // a typing error would be a promise that nobody checks
	if err := dec.Decode(&c); err != nil {
		where := ""
		var wrong *json.SyntaxError
		if errors.As(err, &wrong) {
			where = fmt.Sprintf("line %d: ", 1+bytes.Count(raw[:min(int(wrong.Offset), len(raw))], []byte("\n")))
		}
		return c, fmt.Errorf("%scannot be read: %s", where, strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return c, errors.New("holds more than one JSON value")
	}
	return c, c.check()
}

func (c Case) check() error {
	for _, one := range []struct {
		name string
		raw  json.RawMessage
	}{{"input", c.Input}, {"state", c.State}, {"expect.state", c.Expect.State}} {
		var object map[string]any
		if len(one.raw) > 0 && (json.Unmarshal(one.raw, &object) != nil || object == nil) {
			return fmt.Errorf("%s is no object", one.name)
		}
	}

	if _, there := c.Files[c.File]; c.File != "" && !there {
		return fmt.Errorf("file is %q, which is none of its files; add it there", c.File)
	}
	for i, a := range c.Answers {
		switch {
		case slices.Contains(a.Contains, ""):
			return fmt.Errorf("answers[%d].contains holds an empty text, which is in every request; leave contains out", i)
		case a.Text == "":
			return fmt.Errorf("answers[%d].text is missing", i)
		}
	}
	for i, r := range c.Inbox {
		if r.Title == "" || len(r.Answer) == 0 {
			return fmt.Errorf("inbox[%d] needs a title, or a part of one, and an answer", i)
		}
	}
	for i, argv := range c.Commands {
		if len(argv) == 0 {
			return fmt.Errorf("commands[%d] names no program", i)
		}
	}
	return nil
}
