package checkout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/gitview"
)

// sharedParts are the parts of a repository that linked worktrees share.
var sharedParts = []string{"objects", "refs", "packed-refs", "reftable", "logs", "shallow", "worktrees"}

// repository is a repository of the owner, accessed through a view: git reads rouse's configuration
// instead of the repository's own. The caller must close it.
type repository struct {
	path   string // top folder or bare repository, with links resolved
	gitDir string
	common string // folder of the branches and objects
	bare   bool
	view   string // folder with the links and rouse's configuration
	format string // object format: sha1, sha256
}

// openRepository opens a repository of the owner and creates its view in scratch.
func openRepository(ctx context.Context, path, scratch string) (r *repository, err error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("checkout: repo %s is not an absolute path of this machine; clone the repository here first and name that folder", path)
	}
	r = &repository{}
	if r.path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, fmt.Errorf("checkout: repo: %w", err)
	}
	if err := r.find(); err != nil {
		return nil, err
	}

	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, err
	}
	if r.view, err = os.MkdirTemp(scratch, "view-"); err != nil {
		return nil, err
	}
	if err := r.fill(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *repository) close() { _ = os.RemoveAll(r.view) } // Prune removes remaining files

// find sets the folders of the repository.
func (r *repository) find() error {
	r.gitDir = filepath.Join(r.path, ".git")
	info, err := os.Stat(r.gitDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Join(r.path, "objects")); err != nil {
			return fmt.Errorf("checkout: %s is not the top folder of a git repository", r.path)
		}
		r.gitDir, r.bare = r.path, true
	case err != nil:
		return fmt.Errorf("checkout: repo: %w", err)
	case !info.IsDir(): // a linked worktree or a submodule
		content, err := os.ReadFile(r.gitDir)
		to, ok := strings.CutPrefix(strings.TrimSpace(string(content)), "gitdir: ")
		if err != nil || !ok {
			return fmt.Errorf("checkout: %s does not name the folder of a repository", r.gitDir)
		}
		r.gitDir = relativeTo(r.path, to)
	}

	r.common = r.gitDir
	content, err := os.ReadFile(filepath.Join(r.gitDir, "commondir"))
	if err == nil {
		r.common = relativeTo(r.gitDir, strings.TrimSpace(string(content)))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checkout: repo: %w", err)
	}
	r.common, err = filepath.EvalSymlinks(r.common)
	return err
}

func relativeTo(folder, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(folder, path)
}

// fill fills the view.
func (r *repository) fill(ctx context.Context) error {
	for _, name := range sharedParts {
		to := filepath.Join(r.common, name)
		// Always link packed-refs, because branches may be packed at any time.
		if _, err := os.Stat(to); err != nil && name != "packed-refs" {
			continue
		}
		if err := os.Symlink(to, filepath.Join(r.view, name)); err != nil {
			return err
		}
	}

	config, err := git{}.run(ctx, "config", "--file", filepath.Join(r.common, "config"), "--no-includes", "--null", "--list")
	if err != nil {
		return err
	}
	settings := storage(config)
	r.format = settings["extensions.objectformat"]
	if err := os.WriteFile(filepath.Join(r.view, "HEAD"), []byte("ref: refs/heads/rouse.invalid\n"), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.view, "config"), []byte(configText(settings)), 0o600)
}

// storage returns the storage settings in the output of git config --list. Later settings override
// earlier ones.
func storage(list string) map[string]string {
	settings := map[string]string{}
	for _, entry := range split(list) {
		if key, value, ok := strings.Cut(entry, "\n"); ok && slices.Contains(gitview.Storage, key) {
			settings[key] = value
		}
	}
	return settings
}

func configText(settings map[string]string) string {
	var out strings.Builder
	for _, key := range gitview.Storage {
		if value, ok := settings[key]; ok {
			section, name, _ := strings.Cut(key, ".")
			fmt.Fprintf(&out, "[%s]\n\t%s = \"%s\"\n", section, name, strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value))
		}
	}
	return out.String()
}

// bareGit returns a git that uses the objects and branches of the repository, without a worktree.
func (r *repository) bareGit() git { return git{dir: r.view} }

// head returns the branch that is checked out, or "".
func (r *repository) head() string { return headOf(r.gitDir) }

func headOf(gitDir string) string {
	content, err := os.ReadFile(filepath.Join(gitDir, "HEAD"))
	branch, ok := strings.CutPrefix(strings.TrimSpace(string(content)), "ref: refs/heads/")
	if err != nil || !ok {
		return ""
	}
	return branch
}

// ref returns the commit of a branch, or "".
func (r *repository) ref(ctx context.Context, branch string) (string, error) {
	return r.bareGit().line(ctx, "rev-parse", "--verify", "--quiet", "refs/heads/"+branch)
}

// checkFree returns an error if a branch exists or its name conflicts with another branch.
func (r *repository) checkFree(ctx context.Context, branch string) error {
	for name := branch; name != "."; name = path.Dir(name) {
		there, err := r.ref(ctx, name)
		if err != nil {
			return err
		}
		if there != "" {
			return fmt.Errorf("checkout: the branch %s is already in %s; let `branch:` name a new one for each run, for example with {{ .Run }}", name, r.path)
		}
	}

	below, err := r.bareGit().line(ctx, "for-each-ref", "--count=1", "--format=%(refname:short)", "refs/heads/"+branch+"/")
	if err == nil && below != "" {
		err = fmt.Errorf("checkout: no branch can be named %s in %s, which has the branch %s", branch, r.path, below)
	}
	return err
}
