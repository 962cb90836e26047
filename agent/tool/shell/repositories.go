package shell

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent/sandbox"
	"rouse/internal/gitlayout"
	"rouse/internal/gitview"
	"rouse/internal/nofollow"
	"rouse/internal/owner"
)

// maxConfig bounds the configuration of a repository.
const maxConfig = 1 << 20

// ViewOf returns what git may see of a repository's configuration. Links in it are not followed where an agent can write.
func (h *Launcher) ViewOf(gitDir string) (gitview.View, error) {
	return readView(h.Roots.Boundary(), filepath.Join(gitDir, "config"))
}

// readView reads a configuration. A repository without one has an empty view.
func readView(b nofollow.Boundary, config string) (gitview.View, error) {
	if info, err := os.Lstat(config); err != nil || !info.Mode().IsRegular() {
		return gitview.New(nil) //nolint:wrapcheck // of nothing there is no error
	}
	f, err := b.Open(config)
	if err != nil {
		return gitview.View{}, err
	}
	defer f.Close()

	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(text) > maxConfig {
		err = fmt.Errorf("%s is larger than 1 MiB", config)
	}
	if err != nil {
		return gitview.View{}, err
	}
	return gitview.New(text)
}

// protect makes what is there read-only for a command, and readable for git: instead of each configuration, which may hold
// tokens and name programs, the command has a view of it (see gitview). Where the sandbox cannot put one file in the place
// of another, a configuration that has nothing to hide is read as it is, and git is told by its environment to read the
// view of the working folder's repository. The views lie in a folder that the command cannot write.
func (g *gitGuard) protect(c *sandbox.Command, own string, tier sandbox.Tier) error {
	if len(g.owners) == 0 {
		return nil
	}
	views := filepath.Join(own, "git")
	if err := os.Mkdir(views, 0o700); err != nil {
		return err
	}

	env := []string{"GIT_OPTIONAL_LOCKS=0"} // git status would refresh the index
	var foreign []string
	c.Replaced = map[string]string{}
	for i, path := range slices.Sorted(maps.Keys(g.owners)) {
		if slices.Contains(c.Write, path) { // the workdir itself is a repository of this kind
			c.Write = slices.DeleteFunc(slices.Clone(c.Write), func(w string) bool { return w == path })
			c.Read = append(c.Read, path)
		} else {
			c.ReadOnly = append(c.ReadOnly, path)
		}

		top := path
		if gitlayout.IsName(filepath.Base(path)) {
			top = filepath.Dir(path)
		}
		if isForeign(path) || isForeign(top) {
			foreign = append(foreign, top)
		}
		if !g.owners[path].IsDir() {
			continue
		}
		for j, config := range configurations(path) {
			more, err := g.show(c, config, filepath.Join(views, fmt.Sprintf("%d-%d", i, j)), tier)
			if err != nil {
				return err
			}
			env = append(env, more...)
		}
	}

	// Git refuses a repository of another user, such as that of a person whose machine runs the daemon as a service.
	if len(foreign) > 0 {
		env = append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(foreign)))
		for i, top := range foreign {
			env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=safe.directory", i), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, top))
		}
	}
	c.Env = withEnv(env, c.Env)
	return nil
}

// isForeign reports whether a path belongs to another user.
func isForeign(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && !owner.Mine(info)
}

// show gives a command the view of a configuration. It returns the settings of its environment that git needs for that.
func (g *gitGuard) show(c *sandbox.Command, config, as string, tier sandbox.Tier) (env []string, err error) {
	view, err := readView(c.Boundary, config)
	if err != nil || filepath.Base(config) != "config" {
		c.Masked = append(c.Masked, config)
		return nil, nil //nolint:nilerr // git says that it cannot read it
	}
	if tier == sandbox.TierA {
		c.Replaced[config] = as
		return nil, os.WriteFile(as, []byte(view.Config("")), 0o600)
	}
	if view.Whole {
		return nil, nil
	}

	c.Masked = append(c.Masked, config)
	gitDir := filepath.Join(c.Dir, ".git")
	if filepath.Dir(config) != gitDir {
		return nil, nil
	}
	c.Read = append(c.Read, as)
	return []string{"GIT_DIR=" + gitDir, "GIT_COMMON_DIR=" + as, "GIT_WORK_TREE=" + c.Dir},
		gitview.MakeCommon(as, gitDir, view.Config("[core]\n\tbare = false\n[diff]\n\tignoreSubmodules = all\n"))
}

// configurations lists the configurations of a repository, of its submodules and of its worktrees. Those that cannot be
// looked for cannot be read by a command either.
func configurations(gitDir string) (out []string) {
	var search func(folder string, repository bool, depth int)
	search = func(folder string, repository bool, depth int) {
		entries, err := os.ReadDir(folder)
		if err != nil || depth > maxDepth {
			return
		}
		repository = repository || gitlayout.IsLayout(func(name string) bool {
			return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.EqualFold(e.Name(), name) })
		})
		for _, e := range entries {
			path := filepath.Join(folder, e.Name())
			switch {
			case strings.EqualFold(e.Name(), "config") && !e.IsDir(), strings.EqualFold(e.Name(), "config.worktree"):
				out = append(out, path)
			case e.IsDir() && (!repository || e.Name() == "modules" || e.Name() == "worktrees"):
				search(path, false, depth+1)
			}
		}
	}
	search(gitDir, true, 0)
	return out
}
