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
	skillsDir   = "skills" // of a repository
	maxIndex    = 4 << 20  // bytes
	maxTagged   = 100      // tags of one skill
	maxTagRunes = 64
)

// Registry is the index.json of a repository of skills: which there are, in which folders, and by which tags
// they are found (OSL-01, OSL-02).
type Registry struct {
	File    string          `json:"file"`
	Entries []RegistryEntry `json:"entries"`

	root     string // that folders are relative to
	list     bool   // it could be read as what it has to be
	problems []Problem
}

// RegistryEntry is a skill of an index.
type RegistryEntry struct {
	Name        string   `json:"name" write:"the slug of the skill"`
	Description string   `json:"description" write:"what it does"`
	Version     string   `json:"version" write:"a version, like 1.0.0"`
	Author      string   `json:"author" write:"who wrote it"`
	FolderPath  string   `json:"folderPath" write:"the folder from the root of the repository, like skills/my-skill"`
	Tags        []string `json:"tags" write:"a list, like []"`

	value  value
	path   string // in the index, like [3]
	folder string // FolderPath as a path of this machine; "" if there is no such folder
}

// ReadRegistry reads the index of a repository, skills/index.json or index.json in dir, or in the only folder
// of dir, as archives have it; nil if there is none. What is wrong with it is reported by its Check.
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

// parseIndex reads the content of an index of the repository at root.
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

// repeated are the fields of a manifest that an entry of an index may repeat.
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

// entry reads an entry.
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

// folderOf is the folder of an entry, "" if there is none below the repository. Where the index lies in
// the folder of skills, and that is all there is of the repository, its name is left out.
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

// Folders are those of the entries, as far as they are there, in the order of the index.
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

// Tags are those of the skill in a folder; none where the index does not know it.
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

// Check reports all that is wrong with the index: its own fields, and what it says of the skills that it
// lists (OSL-05). What is wrong with a skill itself is for Validate.
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

// mirrored are the fields of a manifest that an index may repeat, and whether a difference is an error:
// a host decides by these before it has the manifest.
var mirrored = []struct {
	key   string
	fatal bool
}{
	{"version", true}, {"workspaceSchemaVersion", true}, {"executionMode", true},
	{"supportedPlatforms", false}, {"bridgeRequirement", false}, {"workspaceSupport", false}, {"compatibilityRequirements", false},
	{"longRunningSupport", false}, {"userInputSupport", false}, {"artifactVersioningSupport", false},
}

// mirrors compares an entry with the manifest in its folder. A manifest that cannot be read is the business
// of Validate.
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

// canonical is a value on one line, with lists in one order.
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

// checkUnlisted warns of programs beside the index that it does not list, which nobody finds.
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
