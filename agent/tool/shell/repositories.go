package shell

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"rouse/agent/sandbox"
	"rouse/internal/fspath"
	"rouse/internal/gitlayout"
	"rouse/internal/gitview"
	"rouse/internal/nofollow"
	"rouse/internal/owner"
	"rouse/internal/text"
)

// maxConfig limits the configuration of a repository, in bytes.
const maxConfig = 1 << 20

// ViewOf returns the part of a repository's configuration that git may see.
func (h *Launcher) ViewOf(gitDir string) (gitview.View, error) {
	return readView(h.Roots.Boundary(), filepath.Join(gitDir, "config"))
}

// readView reads a configuration. A repository without a configuration has an empty view.
func readView(b nofollow.UntrustedDirs, config string) (gitview.View, error) {
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

// protect makes repositories read-only for a command but readable for git. Their configurations may
// contain tokens and name programs, so the command sees a view of each instead (see gitview). If
// the sandbox cannot replace a file, environment variables make git read the view of the working
// folder's repository. The views lie in a folder that the command cannot write.
func (g *gitGuard) protect(c *sandbox.Command, own string, tier sandbox.Tier) error {
	if len(g.owners) == 0 {
		return nil
	}
	views := filepath.Join(own, "git")
	if err := os.Mkdir(views, 0o700); err != nil {
		return err
	}

	env := []string{"GIT_OPTIONAL_LOCKS=0"} // otherwise git status would refresh the index
	var foreign []string
	c.Replaced = map[string]string{}
	for i, path := range slices.Sorted(maps.Keys(g.owners)) {
		if slices.Contains(c.Write, path) { // the working folder itself is a bare repository
			c.Write = slices.DeleteFunc(slices.Clone(c.Write), func(w string) bool { return w == path })
			c.Read = append(c.Read, path)
		} else {
			c.ReadOnly = append(c.ReadOnly, path)
		}

		top := topOf(path)
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

	// Git refuses a repository of another user, for example a person's repository if the daemon
	// runs as a service.
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

// show gives a command the view of a configuration. It returns the environment variables that git
// needs for it.
func (g *gitGuard) show(c *sandbox.Command, config, as string, tier sandbox.Tier) (env []string, err error) {
	view, err := readView(c.Boundary, config)
	if err != nil || filepath.Base(config) != "config" {
		c.Masked = append(c.Masked, config)
		return nil, nil //nolint:nilerr // git says that it cannot read it
	}
	if tier == sandbox.TierNamespaces {
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

// configurations lists the configurations of a repository, its submodules and its worktrees.
// Configurations that cannot be found are not readable for a command either.
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

// refusedPaths match the path of a refusal, which may be relative. The path is in quotes before or
// after the message, or unquoted before it. A line may be JSON, in which an escaped quote ends the
// path.
var refusedPaths = []*regexp.Regexp{
	regexp.MustCompile(`(?i)['"‘]([^'"‘’\\]+)\\?['"’]: *(?:permission denied|operation not permitted|read-only file system)`),
	regexp.MustCompile(`(?i)(?:permission denied|operation not permitted|read-only file system)(?:: |, \w+ )\\?['"]([^'"\\]+)\\?['"]`),
	regexp.MustCompile(`(?i)([^\s'"‘’:]+): *(?:permission denied|operation not permitted|read-only file system)`),
}

// refusedPath returns the path of a refusal, or "".
func (h *Launcher) refusedPath(line string) string {
	for _, re := range refusedPaths {
		if m := re.FindStringSubmatch(line); m != nil && filepath.IsAbs(m[1]) {
			return filepath.Clean(m[1])
		} else if m != nil {
			return filepath.Join(h.Roots.Workdir(), m[1])
		}
	}
	return lastPath(line)
}

// refusedByGit returns the reason and the remedy if a git repository of the owner caused the
// refusal, or "".
func (h *Launcher) refusedByGit(ended Ended, line string, refused bool) string {
	if _, gitDir, ok := strings.Cut(line, "not a git repository: "); ok {
		if gitDir = strings.TrimSpace(gitDir); h.outside(gitDir, false) {
			return fmt.Sprintf("the repository of this worktree is %s, which no program of the agent can read; %s", text.Visible(gitDir), UseCheckout(filepath.Dir(h.Roots.Workdir())))
		}
	}
	if !refused || len(ended.repositories) == 0 {
		return ""
	}

	path := h.refusedPath(line)
	for _, repository := range ended.repositories {
		top := topOf(repository)
		switch {
		case path == "":
		case fspath.Within(path, repository) && strings.Contains(line, "unable to access"):
			return fmt.Sprintf("the configuration of the git repository %s has settings that are hidden from programs, and this sandbox cannot show git the others; install bubblewrap (tier A), or %s", text.Visible(top), UseCheckout(top))
		case fspath.Within(path, repository):
			return cannotChange(top)
		case ended.Tier == sandbox.TierLandlock && BesideOnly && fspath.Within(repository, filepath.Dir(path)) && !h.outside(filepath.Dir(path), true):
			return NothingBeside(filepath.Dir(path), top) + "; " + UseCheckout(top)
		}
	}
	return ""
}

// BesideOnly reports whether entries cannot be created beside a repository on tier B, because
// Landlock cannot deny access within an allowed folder.
const BesideOnly = runtime.GOOS == "linux"

func cannotChange(repository string) string {
	return fmt.Sprintf("programs read the git repository %s, and cannot change it (git add, commit, checkout, stash); the tool git_commit can commit, or %s", text.Visible(repository), UseCheckout(repository))
}

// NothingBeside returns a message that programs cannot change entries of a folder on tier B,
// because the folder contains a repository.
func NothingBeside(folder, repository string) string {
	return fmt.Sprintf("beside the git repository %s programs can make, rename or remove nothing in the folder %s itself on tier B; install bubblewrap for tier A", text.Visible(repository), text.Visible(folder))
}

// Beside returns a warning if the program could not change entries of the working folder because of
// a repository there. Without the warning, a program that ignores such errors would seem to have
// created its files.
func (e Ended) Beside(workdir string) string {
	i := slices.IndexFunc(e.repositories, func(path string) bool { return fspath.Within(path, workdir) })
	if e.Tier != sandbox.TierLandlock || !BesideOnly || i < 0 {
		return ""
	}
	top := topOf(e.repositories[i])
	return NothingBeside(workdir, top) + "; " + UseCheckout(top)
}

// topOf returns the folder of a repository: the parent of its .git, or a bare repository itself.
func topOf(repository string) string {
	if gitlayout.IsName(filepath.Base(repository)) {
		return filepath.Dir(repository)
	}
	return repository
}

// UseCheckout returns the advice for a program that needs more of git than reading. The working
// folder must be another one, because agents must not write in the repository of a checkout.
func UseCheckout(repository string) string {
	return fmt.Sprintf("for a private clone with all of git, give the agent another workdir, and write in the job: checkout: {repo: %s}", text.Visible(repository))
}
