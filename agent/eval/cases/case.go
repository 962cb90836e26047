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

// Limits of a skill's cases.
const (
	maxCases = 500
	maxBytes = 4 << 20 // per case
)

// Case is the input of a skill and the expected results.
type Case struct {
	Name  string          `json:"-"`     // name of the file
	About string          `json:"about"` // description for readers
	Input json.RawMessage `json:"input"` // a JSON object; {} if missing
	// Config holds the skill's settings, as its owner would set them.
	Config map[string]any    `json:"config"`
	Files  map[string]string `json:"files"` // files of the working folder, by path
	// File is the path in Files of the file that started the run. Optional.
	File string `json:"file"`
	// Workspace is the name of the run's workspace. If it is "" and the skill needs a workspace,
	// the run gets one with a default name.
	Workspace string            `json:"workspace"`
	State     json.RawMessage   `json:"state"`    // state of the workspace before the run
	Secrets   map[string]string `json:"secrets"`  // values for the bindings of the skill, by name
	Commands  [][]string        `json:"commands"` // patterns of the programs that may be run, as in grants: commands
	Answers   []Answer          `json:"answers"`  // answers of the model
	Inbox     []Reply           `json:"inbox"`    // replies of the owner
	Expect    Want              `json:"expect"`
}

// Answer is the model's answer to each request that contains certain texts.
type Answer struct {
	Contains replay.Texts `json:"contains"` // empty for any request
	Text     string       `json:"text"`
}

// Reply is the owner's reply to one inbox item, selected by a text in its title.
type Reply struct {
	Title  string          `json:"title"`
	Answer json.RawMessage `json:"answer"` // a text, or an object if the item has a schema
}

// Want holds the expected results of a case. Fields without a value are not compared.
type Want struct {
	Outcome string            `json:"outcome"` // "" means success
	Output  json.RawMessage   `json:"output"`  // returned value; objects may have additional keys
	Message string            `json:"message"` // part of the summary or the error
	Files   map[string]string `json:"files"`   // contents of files in the working folder, ignoring surrounding space
	State   json.RawMessage   `json:"state"`   // state of the workspace; objects may have additional keys
	// Artifacts are expected artifacts of the workspace. Each must match the latest version of at
	// least one artifact.
	Artifacts []Artifact `json:"artifacts"`
}

// Artifact describes an artifact. Fields that are "" or 0 match any value.
type Artifact struct {
	Title    string `json:"title"`
	Type     string `json:"type"`
	Status   string `json:"status"`
	Version  int    `json:"version"`
	Contains string `json:"contains"` // part of the content
}

// Read reads the cases of the skill in a folder, sorted by name. Its error contains the file and
// the problem.
func Read(dir string) (out []Case, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() // os.Root prevents links that lead out of the folder

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

// Parse parses a case.
func Parse(name string, raw []byte) (Case, error) {
	c := Case{Name: name}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields() // otherwise a misspelled expectation would not be checked
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
