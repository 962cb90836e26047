package prompt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/git"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

// Limits of the description of a project folder in a prompt.
const (
	maxTree        = 8_000  // characters
	maxManifest    = 4_000  // characters
	maxGitStatus   = 2_000  // bytes
	maxAdviceBytes = 20_000 // bytes; a longer file is cut in the middle
	maxTreeEntries = 2_000  // entries read from one folder, and entries listed in total
	treeDepth      = 4

	// Limits for a folder that is not a project.
	maxPlainTree    = 1_000 // characters
	maxPlainEntries = 40
)

// project is a kind of project folder. A folder is of this kind if it contains the manifest file.
type project struct {
	manifest, kind string
	ignore         []string // globs of generated files and folders
}

var projects = []project{
	{"Package.swift", "Swift", []string{".build", "DerivedData", "Pods", ".swiftpm", "*.xcodeproj", "*.xcworkspace"}},
	{"package.json", "Node", []string{"node_modules", "dist", ".next", "build", ".cache"}},
	{"pyproject.toml", "Python", []string{"__pycache__", ".venv", "venv", "*.pyc", ".pytest_cache", ".mypy_cache"}},
	{"setup.py", "Python", []string{"__pycache__", ".venv", "venv", "*.pyc", ".pytest_cache", ".mypy_cache"}},
	{"requirements.txt", "Python", []string{"__pycache__", ".venv", "venv", "*.pyc", ".pytest_cache", ".mypy_cache"}},
	{"Cargo.toml", "Rust", []string{"target"}},
	{"go.mod", "Go", []string{"vendor"}},
}

// adviceFiles are the names of files with advice for agents. Only the first file that exists is
// used.
var adviceFiles = []string{".hermes.md", "HERMES.md", "AGENTS.md", "CLAUDE.md", ".cursorrules"}

// ProjectDir returns the folder that a prompt describes.
func ProjectDir(t *plan.Task) string { return cmp.Or(t.Agent.HostFolder, t.Agent.Workdir) }

// describeFolder returns the description of the task's folder for the prompt of an attempt.
func (r Sources) describeFolder(ctx context.Context, t *plan.Attempt) string {
	redact := t.Redactor().Replace
	return ProjectFolder(t.Plan.Boundary, ProjectDir(&t.Task), r.showsPlainFolder(ctx, t), redact, func(most int) int { return Part(&t.Task, most) }, func() string {
		if t.Agent.HostFolder != "" {
			return "" // git runs only in the workdir
		}
		roots, err := permit.Roots(r.Ledger, t, nil)
		if err != nil {
			return ""
		}
		host, err := r.Programs.Launcher(t, roots)
		if err != nil {
			return ""
		}
		return git.Summary(ctx, host, t.Agent.Name, redact, Part(&t.Task, maxGitStatus))
	})
}

// showsPlainFolder reports whether a prompt may list a folder that is not a project. It may not if
// the list would label the run, because a label can make later calls require an approval.
func (r Sources) showsPlainFolder(ctx context.Context, t *plan.Attempt) bool {
	roots, err := permit.Roots(r.Ledger, t, nil)
	if err != nil {
		return false
	}
	need := roots.ReadNeed(cmp.Or(t.Agent.HostFolder, "."))
	letters, err := r.Ledger.Labels.Of(ctx, need.Reads...)
	return err == nil && need.AddsTaint|tool.ParseTaint(letters) == 0
}

// ProjectFolder describes a folder for a model: the kind of project, files, manifest, branch, git
// status and advice for agents. If the folder has neither a manifest nor advice, the description is
// short, and it is empty unless plain is set. Files and folders that cannot be read are omitted.
//
// gitStatus is optional. Secrets are redacted before a text is cut. part returns the maximum length
// of a part of the description.
func ProjectFolder(b nofollow.UntrustedDirs, dir string, plain bool, redact func(string) string, part func(most int) int, gitStatus func() string) string {
	roots, err := tool.NewRootsWithin(b, dir, nil)
	if err != nil {
		return ""
	}

	place, err := roots.Resolve(".", false)
	if err != nil {
		return ""
	}
	defer place.Close()

	root := place.FS()
	var s strings.Builder
	var ignore []string
	manifest := ""
	for _, p := range projects {
		if info, err := fs.Stat(root, p.manifest); err != nil || !info.Mode().IsRegular() {
			continue
		}

		if manifest == "" {
			manifest = p.manifest
			fmt.Fprintf(&s, "It is a project of kind %s.\n", p.kind)
		}

		ignore = append(ignore, p.ignore...)
	}

	told := slices.IndexFunc(adviceFiles, func(name string) bool { return excerptOfFile(roots, name, 1, redact) != "" })
	most, entries := part(maxTree), maxTreeEntries
	if manifest == "" && told < 0 {
		if !plain {
			return ""
		}
		most, entries = part(maxPlainTree), maxPlainEntries
	}

	if branch, ok := strings.CutPrefix(excerptOfFile(roots, ".git/HEAD", 300, redact), "ref: refs/heads/"); ok {
		fmt.Fprintf(&s, "It is under git, on the branch %q.\n", strings.TrimSpace(branch))
	}

	if tree := listTree(root, ignore, most, entries); tree != "" {
		fmt.Fprintf(&s, "Its files when this run began:\n%s", tree)
	}
	if content := excerptOfFile(roots, manifest, part(maxManifest), redact); content != "" {
		fmt.Fprintf(&s, "\n%s:\n%s\n", manifest, content)
	}

	if gitStatus != nil && git.Repository(dir) {
		if said := gitStatus(); said != "" {
			s.WriteString("\n" + said)
		}
	}

	if told >= 0 {
		fmt.Fprintf(&s, "\nWhat %s says to agents:\n%s\n", adviceFiles[told], excerptOfFile(roots, adviceFiles[told], part(maxAdviceBytes), redact))
	}

	return s.String()
}

// secretSpare is the number of bytes that are read beyond a cut. It makes sure that a secret across
// the cut is redacted as a whole.
const secretSpare = 4 << 10

// excerptOfFile returns the redacted text of a file. It cuts a long file in the middle. It returns
// "" if the file does not exist, cannot be read or is not UTF-8.
func excerptOfFile(roots *tool.Roots, name string, most int, redact func(string) string) string {
	if name == "" {
		return ""
	}

	f, err := roots.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}

	size := info.Size()
	if size <= int64(most) {
		return redact(validUTF8(readPart(f, 0, int64(most))))
	}

	head, tail := int64(most/2), int64(most-most/2)
	begins := validUTF8(readPart(f, 0, min(size, head+secretSpare)))
	ends := validUTF8(readPart(f, max(0, size-tail-secretSpare), size))
	if begins == "" || ends == "" {
		return ""
	}

	return fmt.Sprintf("%s\n[… %d bytes …]\n%s", text.RedactedHead(begins, max(0, len(begins)-int(head)), redact), size-int64(most),
		text.RedactedTail(ends, max(0, len(ends)-int(tail)), redact))
}

func readPart(f io.ReaderAt, from, to int64) []byte {
	part, err := io.ReadAll(io.NewSectionReader(f, from, to-from))
	if err != nil {
		return nil
	}
	return part
}

// validUTF8 returns part as a string, or "" if it is not UTF-8 text. It drops characters that are
// cut off at either end.
func validUTF8(part []byte) string {
	out := strings.ToValidUTF8(string(part), "")
	if strings.ContainsRune(out, 0) || len(part)-len(out) > 2*utf8.UTFMax {
		return ""
	}
	return out
}

// listTree lists a folder level by level, so that a deep subfolder does not crowd out its siblings.
func listTree(root fs.FS, ignore []string, most, maxEntries int) string {
	type level struct {
		dir   string
		depth int
	}
	var s strings.Builder
	seen, long := 0, 0
	for waiting := []level{{".", 1}}; len(waiting) > 0; waiting = waiting[1:] {
		at := waiting[0]
		entries, err := readSome(root, at.dir)
		if err != nil {
			continue // a tool call reports the error if the model opens the folder
		}

		for _, e := range entries {
			name := path.Join(at.dir, e.Name())
			if strings.HasPrefix(e.Name(), ".") || tool.IsSecretPath(name) || slices.ContainsFunc(ignore, func(glob string) bool { ok, err := path.Match(glob, e.Name()); return err == nil && ok }) {
				continue
			}

			if e.IsDir() {
				if at.depth < treeDepth {
					waiting = append(waiting, level{name, at.depth + 1})
				}
				name += "/"
			}

			if strings.ContainsAny(name, "\n\r") {
				name = fmt.Sprintf("%q", name)
			}

			long += utf8.RuneCountInString(name) + 1
			if seen++; seen > maxEntries || long > most-2 {
				return s.String() + "…\n"
			}

			s.WriteString(name + "\n")
		}
	}

	return s.String()
}

func readSome(root fs.FS, dir string) ([]fs.DirEntry, error) {
	f, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()

	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, fmt.Errorf("list %s: it is not a folder", dir)
	}
	entries, err := d.ReadDir(maxTreeEntries + 1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}
