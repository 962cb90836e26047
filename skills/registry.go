package skills

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	indexFile   = "index.json"
	skillsDir   = "skills" // in a repository
	maxIndex    = 4 << 20  // in bytes
	maxTagged   = 100      // tags per skill
	maxTagRunes = 64
)

// Registry is the index.json of a skill repository. It lists the skills with their folders and
// tags.
type Registry struct {
	File    string          `json:"file"`
	Entries []RegistryEntry `json:"entries"`

	root     string // directory that contains the folders
	list     bool   // the file contains a list
	problems []Problem
}

// RegistryEntry is a skill in an index.
type RegistryEntry struct {
	Name        string   `json:"name" write:"the slug of the skill"`
	Description string   `json:"description" write:"what it does"`
	Version     string   `json:"version" write:"a version, like 1.0.0"`
	Author      string   `json:"author" write:"who wrote it"`
	FolderPath  string   `json:"folderPath" write:"the folder from the root of the repository, like skills/my-skill"`
	Tags        []string `json:"tags" write:"a list, like []"`

	value  value
	path   string // path in the index, like [3]
	folder string // absolute path of FolderPath; "" if there is no such folder
}

// ReadRegistry reads the index of the repository in dir: skills/index.json or index.json. If dir
// contains only one folder, as unpacked archives do, it also searches that folder. It returns nil
// if there is no index. Use Registry.Check to get the problems of the index.
func ReadRegistry(dir string) *Registry {
	real, problems := resolveDir(dir)
	if len(problems) > 0 {
		return nil
	}

	if x := readIndexIn(real); x != nil {
		return x
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return nil
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") })
	if len(entries) != 1 || !entries[0].IsDir() {
		return nil
	}
	return readIndexIn(filepath.Join(real, entries[0].Name()))
}

func readIndexIn(dir string) *Registry {
	for _, name := range []string{filepath.Join(skillsDir, indexFile), indexFile} {
		if !hasFiles(dir, name) {
			continue
		}
		file := filepath.Join(dir, name)
		source, problems := readFile(dir, name, maxIndex, "")
		if len(problems) > 0 {
			return &Registry{File: file, root: dir, problems: problems}
		}
		return parseIndex(file, dir, source)
	}
	return nil
}

// parseIndex parses the content of an index. root is the repository's directory.
func parseIndex(file, root string, source []byte) *Registry {
	x := &Registry{File: file, root: root, Entries: []RegistryEntry{}}
	v, problems := parseJSON(file, source)
	r := &report{file: file, problems: problems}
	switch v.kind {
	case "":
	case kindList:
		x.list = true
		for i, item := range v.items {
			o := &object{report: r, value: item, path: fmt.Sprintf("[%d]", i)}
			if item.kind != kindObject {
				r.add(item, o.path, RuleFieldType, false, "is %s, and must be an object", said(item))
				continue
			}
			x.Entries = append(x.Entries, o.entry())
		}
	default:
		r.add(v, "", RuleFieldType, false, "is %s, and must be a list of skills", v.kind)
	}

	for i, e := range x.Entries {
		x.Entries[i].folder = x.folderOf(e.FolderPath)
	}
	x.problems = r.problems
	return x
}

// repeated holds the manifest fields that an index entry may repeat.
type repeated struct {
	SupportedPlatforms        []string `json:"supportedPlatforms" of:"macos windows linux"`
	BridgeRequirement         string   `json:"bridgeRequirement" of:"never optional required"`
	WorkspaceSupport          Support  `json:"workspaceSupport" of:"none optional required"`
	WorkspaceSchemaVersion    string   `json:"workspaceSchemaVersion"`
	CompatibilityRequirements []string `json:"compatibilityRequirements"`
	LongRunningSupport        string   `json:"longRunningSupport" of:"none optional required"`
	UserInputSupport          bool     `json:"userInputSupport"`
	ArtifactVersioningSupport bool     `json:"artifactVersioningSupport"`
	ExecutionMode             string   `json:"executionMode" of:"declarative flow agentic"`
}

// entry decodes and checks an index entry.
func (o *object) entry() RegistryEntry {
	var e struct {
		RegistryEntry
		repeated
	}
	o.decode(&e)
	if (e.WorkspaceSupport == SupportOptional || e.WorkspaceSupport == SupportRequired) && e.WorkspaceSchemaVersion == "" {
		o.fail("workspaceSchemaVersion", RuleFieldMissing, "is missing, and workspaceSupport is %s; write the version of the manifest", e.WorkspaceSupport)
	}
	o.features()

	e.value, e.path = o.value, o.path
	return e.RegistryEntry
}

// folderOf returns the absolute folder of an entry, or "" if it is not below the root. If the root
// is itself the folder of skills, it also tries the path without the root's name.
func (x *Registry) folderOf(folderPath string) string {
	clean := path.Clean(folderPath)
	candidates := []string{filepath.FromSlash(clean)}
	if rest, ok := strings.CutPrefix(clean, filepath.Base(x.root)+"/"); ok {
		candidates = append(candidates, filepath.FromSlash(rest))
	}

	for _, rel := range candidates {
		if folderPath == "" || !filepath.IsLocal(rel) || rel == "." {
			continue
		}
		dir := filepath.Join(x.root, rel)
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return ""
}

// Folders returns the existing folders of the entries, in index order and without duplicates.
func (x *Registry) Folders() (out []string) {
	seen := map[string]bool{"": true}
	for _, e := range x.Entries {
		if !seen[e.folder] {
			out = append(out, e.folder)
		}
		seen[e.folder] = true
	}
	return out
}

// Tags returns the tags of the skill in dir, or nil if the index does not contain it.
func (x *Registry) Tags(dir string) []string {
	if x == nil {
		return nil
	}

	i := slices.IndexFunc(x.Entries, func(e RegistryEntry) bool { return e.folder == dir })
	if i < 0 {
		return nil
	}

	var out []string
	for _, tag := range x.Entries[i].Tags {
		if len(out) < maxTagged && len([]rune(tag)) <= maxTagRunes {
			out = append(out, tag)
		}
	}
	return out
}

// Check returns all problems of the index: its own fields, and differences from the listed skills.
// Use Validate to check the skills themselves.
func (x *Registry) Check() []Problem {
	r := &report{file: x.File, problems: slices.Clone(x.problems)}
	seen := map[string]bool{}
	for _, e := range x.Entries {
		o := &object{report: r, value: e.value, path: e.path}
		if e.Name != "" && seen[e.Name] {
			o.fail("name", RuleNameTwice, "%q is there twice; give one another name", e.Name)
		}
		seen[e.Name] = true

		switch {
		case e.FolderPath == "":
		case e.folder == "":
			o.fail("folderPath", RuleIndexFolder, "%q is no folder of this repository; write it from the root of the repository", e.FolderPath)
		default:
			o.mirrors(e.folder)
		}
	}

	if x.list {
		x.checkUnlisted(r)
	}
	return inOrder(r.problems)
}

// mirrored lists the manifest fields that an index entry may repeat. A mismatch of a fatal field is
// an error, because a host relies on the field before it has the manifest.
var mirrored = []struct {
	key   string
	fatal bool
}{
	{"version", true}, {"workspaceSchemaVersion", true}, {"executionMode", true},
	{"supportedPlatforms", false}, {"bridgeRequirement", false}, {"workspaceSupport", false}, {"compatibilityRequirements", false},
	{"longRunningSupport", false}, {"userInputSupport", false}, {"artifactVersioningSupport", false},
}

// mirrors compares an entry with the manifest in dir. It ignores an unreadable manifest, which
// Validate reports.
func (o *object) mirrors(dir string) {
	source, problems := readFile(dir, manifestFile, MaxFile, "")
	if len(problems) > 0 {
		return
	}
	m, _ := parseJSON(filepath.Join(dir, manifestFile), source)

	if of, _ := m.lookup("name"); of.kind == kindText && of.text != o.at("name").text {
		o.warn("name", RuleNameManifest, "is not %q, as in its manifest; call both the same", of.text)
	}
	for _, f := range mirrored {
		here, ok := o.value.lookup(f.key)
		there, both := m.lookup(f.key)
		if !ok || !both || canonical(here) == canonical(there) {
			continue
		}
		o.add(here, join(o.path, f.key), RuleIndexMismatch, !f.fatal, "is %s, and %s in the manifest; write here what stands there", canonical(here), canonical(there))
	}
}

// canonical returns a value on one line, with lists sorted.
func canonical(v value) string {
	if v.kind == kindList {
		var items []string
		for _, item := range v.items {
			items = append(items, canonical(item))
		}
		slices.Sort(items)
		return "[" + strings.Join(items, ", ") + "]"
	}

	var b bytes.Buffer
	if json.Compact(&b, v.raw) != nil {
		return string(v.raw)
	}
	return b.String()
}

// checkUnlisted warns about programs next to the index that the index does not list.
func (x *Registry) checkUnlisted(r *report) {
	dir, listed := filepath.Dir(x.File), x.Folders()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}

	for _, e := range entries {
		if sub := filepath.Join(dir, e.Name()); e.IsDir() && hasProgram(sub) && !slices.Contains(listed, sub) {
			r.problems = append(r.problems, warning(sub, RuleIndexUnlisted, "is not listed in %s, so that nobody finds it; add an entry", indexFile))
		}
	}
}
