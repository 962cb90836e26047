package skills

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// MaxFile is the maximum size of a SKILL.md in bytes. It is far more than a model should load at
// once: 5,000 tokens are recommended.
const MaxFile = 1 << 20

// maxHead is the maximum number of bytes of a SKILL.md that are read for its frontmatter.
const maxHead = 64 << 10

// Skill is a skill without its instructions.
type Skill struct {
	Name          string            `json:"name"`
	Description   string            `json:"description"`
	License       string            `json:"license,omitempty"`
	Compatibility string            `json:"compatibility,omitempty"`
	AllowedTools  []string          `json:"allowed_tools,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	Dir           string            `json:"dir"` // absolute, with links resolved
	// File is the SKILL.md in Dir, or the manifest.json of a skill without instructions.
	File   string `json:"file"`
	Source string `json:"source"` // label of its root, or "path"
	// TrustedHash is the hash under which the skill was individually trusted. It is "" if its root
	// is trusted.
	TrustedHash string `json:"trusted_hash,omitempty"`
	// Manifest is the manifest of the skill's program. Nil if the skill has only instructions.
	Manifest *Manifest `json:"manifest,omitempty"`
	Tags     []string  `json:"tags,omitempty"` // from the index that lists the skill
}

// Kind is the composition of a skill.
type Kind string

// The kinds of skills.
const (
	KindInstructions Kind = "instructions" // SKILL.md, which an agent follows
	KindModule       Kind = "module"       // manifest.json and module.ts
	KindBoth         Kind = "both"
)

// Kind returns the composition of the skill.
func (s *Skill) Kind() Kind {
	switch {
	case s.Manifest == nil:
		return KindInstructions
	case filepath.Base(s.File) == manifestFile:
		return KindModule
	}
	return KindBoth
}

// fileNames are the accepted names of SKILL.md, the preferred one first.
var fileNames = []string{"SKILL.md", "skill.md"}

// KeepsWorkspaces reports whether the skill keeps state across runs. The manifest decides, or the
// workspace field in the metadata of SKILL.md if there is no manifest.
func (s *Skill) KeepsWorkspaces() bool {
	support := Support(s.Metadata["workspace"])
	if s.Manifest != nil {
		support = s.Manifest.WorkspaceSupport
	}
	return support == SupportOptional || support == SupportRequired
}

// Load loads the skill in dir leniently. Invalid names, unknown fields and repairable YAML are
// warnings. A skill without a description is not loaded. The skill is nil if and only if a problem
// is not a warning.
func Load(dir string) (*Skill, []Problem) {
	real, problems := resolveDir(dir)
	if hasError(problems) {
		return nil, problems
	}
	return load(real, hasProgram(real))
}

// load loads the skill in a resolved directory. program is true if dir contains a complete program.
func load(dir string, program bool) (*Skill, []Problem) {
	file, text, problems := readSkillFile(dir, maxHead)
	if len(problems) > 0 && problems[0].Rule == RuleFileMissing && program {
		return loadProgram(dir)
	}
	if hasError(problems) {
		return nil, problems
	}

	head, found := parseFrontmatter(file, text, true)
	problems = append(problems, found...)
	if head == nil {
		if len(text) == maxHead {
			problems = append(problems, Problem{File: file, Line: 1, Rule: RuleTooLarge, Message: fmt.Sprintf("name and description must stand in the first %d KiB", maxHead>>10)})
		}
		return nil, problems
	}

	c := checker{file: file, frontmatter: head, lenient: true}
	s := c.skill(filepath.Base(filepath.Dir(file)))
	problems = append(problems, c.problems...)
	if hasError(problems) {
		return nil, problems
	}

	s.File, s.Dir, s.Source = file, filepath.Dir(file), "path"
	if program {
		problems = append(problems, s.addProgram()...)
	}
	return s, problems
}

// Instructions reads the text after the frontmatter and trims it. The error names the file, which
// may have been deleted or changed since discovery. A skill without a SKILL.md returns the
// documentation of its program.
func (s *Skill) Instructions() (string, error) {
	if s.Kind() == KindModule {
		return s.programText()
	}

	file, text, problems := readSkillFile(s.Dir, MaxFile)
	if hasError(problems) {
		return "", problems[0]
	}

	_, _, body, rule := splitFrontmatter(text)
	if rule != "" {
		return "", fmt.Errorf("%s no longer has a complete frontmatter (%s); was it changed just now?", file, rule)
	}
	if !utf8.Valid(text[body:]) {
		return "", fmt.Errorf("%s is not UTF-8 text; save it as UTF-8", file)
	}

	return strings.TrimSpace(strings.ReplaceAll(string(text[body:]), "\r\n", "\n")), nil
}

// Resolve returns the absolute path of a skill's directory with links resolved, in the form of
// Skill.Dir. If the directory does not exist, it returns the absolute path.
func Resolve(dir string) (string, error) {
	real, problems := resolveDir(dir)
	if hasError(problems) && problems[0].Rule != RulePathMissing {
		return "", problems[0]
	}
	return real, nil
}

// resolveDir returns the absolute path of a directory, with links resolved.
func resolveDir(dir string) (string, []Problem) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir, unreadable(dir, err)
	}

	real, err := filepath.EvalSymlinks(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return abs, problem(abs, RulePathMissing, "does not exist")
	case err != nil:
		return abs, unreadable(abs, err)
	}

	if info, err := os.Stat(real); err == nil && !info.IsDir() {
		return real, problem(real, RuleNotDirectory, "is not a directory; a skill is a directory with a SKILL.md, or with manifest.json and module.ts")
	}
	return real, nil
}

// readSkillFile reads up to limit bytes of the SKILL.md in a resolved directory.
func readSkillFile(real string, limit int64) (file string, text []byte, problems []Problem) {
	for _, name := range fileNames {
		if hasFiles(real, name) {
			text, problems = readFile(real, name, limit, "; move what is not needed each time to files beside it")
			return filepath.Join(real, name), text, problems
		}
	}
	return real, nil, problem(real, RuleFileMissing, "has no SKILL.md, and no program (manifest.json and module.ts)")
}

// readFile reads up to limit bytes of a file in dir. It follows only links that stay within dir.
// advice is appended to the message about a file that is too large.
func readFile(dir, name string, limit int64, advice string) (text []byte, problems []Problem) {
	file := filepath.Join(dir, name)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, unreadable(dir, err)
	}
	defer root.Close()

	info, err := root.Stat(name)
	most := max(limit, MaxFile)
	switch {
	case err != nil && isLink(root, name):
		return nil, problem(file, RuleLinkOutside, "is a link that leads out of its directory or nowhere; put the file itself there")
	case err != nil:
		return nil, unreadable(file, err)
	case !info.Mode().IsRegular(): // opening a named pipe would block
		return nil, problem(file, RuleNotRegular, "is not a file")
	case info.Size() > most:
		return nil, problem(file, RuleTooLarge, "has %d bytes, and %d are the most%s", info.Size(), most, advice)
	}

	f, err := root.Open(name)
	if err != nil {
		return nil, unreadable(file, err)
	}
	defer f.Close()
	if text, err = io.ReadAll(io.LimitReader(f, limit)); err != nil {
		return nil, unreadable(file, err)
	}
	// UTF-16 begins with a byte order mark. Without this check, the error would be a missing ---.
	if len(text) > 1 && (text[0] == 0xff && text[1] == 0xfe || text[0] == 0xfe && text[1] == 0xff) {
		return nil, problem(file, RuleEncoding, "is UTF-16 text; save it as UTF-8")
	}
	return text, nil
}

// unreadable returns an operating system error about a file or directory.
func unreadable(file string, err error) []Problem {
	return problem(file, RuleUnreadable, "%v", withoutPath(err))
}

func isLink(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// withoutPath removes the operation and path from an error, because a Problem already has the path.
func withoutPath(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// stringMap converts a mapping to strings. It returns false if the node is not a mapping.
func stringMap(n *yaml.Node) (map[string]string, bool) {
	if n.Kind != yaml.MappingNode {
		return nil, false
	}

	out := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		out[n.Content[i].Value] = flatten(n.Content[i+1])
	}
	return out, true
}

// flatten converts a value to one string. List items and mapping values are separated by commas.
func flatten(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return n.Value
	}

	var parts []string
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			continue
		}
		parts = append(parts, flatten(c))
	}

	return strings.Join(parts, ", ")
}
