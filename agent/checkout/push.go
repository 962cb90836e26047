package checkout

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Login holds the credentials for a remote over HTTPS. Git servers accept any name together with a
// token.
type Login struct {
	Name  string // empty means x-access-token
	Token string // empty if the remote does not need a token
}

var remoteName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)

// IsRemoteName reports whether name can be the name of a remote. URLs are not valid names.
func IsRemoteName(name string) bool {
	return remoteName.MatchString(name) && !strings.Contains(name, "://")
}

// Push sends the branch of a result to a named remote of the owner's repository. It never uses an
// address from the agent. It succeeds if the remote branch already has the commits. It returns an
// error if the remote branch has other commits.
//
// The token is passed to git in the environment and sent only to the host of the remote. Hooks of a
// remote on this machine do not run.
func (s *Store) Push(ctx context.Context, res Result, remote string, login Login) error {
	if err := s.push(ctx, res, remote, login); err != nil {
		return fmt.Errorf("push of run %s: %w", res.Run, err)
	}
	return nil
}

func (s *Store) push(ctx context.Context, res Result, remote string, login Login) error {
	rec, err := s.read(res.Run)
	if err != nil {
		return err
	}
	if rec.Result == nil || rec.Result.Head != res.Head || res.Head == rec.Base {
		return errors.New("the run has no commits that were brought back")
	}
	r, err := openRepository(ctx, rec.Repo, s.scratch())
	if err != nil {
		return err
	}
	defer r.close()

	to, err := r.remote(ctx, remote)
	if err != nil {
		return err
	}
	settings, err := transport(to, login)
	if err != nil {
		return fmt.Errorf("remote %s: %w", remote, err)
	}
	g := r.bareGit()
	g.env = configEnv(settings)
	_, err = g.run(ctx, "push", "--quiet", "--no-verify", "--no-signed", "--recurse-submodules=no", "--receive-pack=git -c core.hooksPath=/dev/null -c core.fsmonitor=false receive-pack", "--", to, res.Head+":refs/heads/"+rec.Branch)
	return explain(err, remote, rec.Branch)
}

// Remote returns the push address of a remote of the owner's repository.
func (s *Store) Remote(ctx context.Context, res Result, remote string) (string, error) {
	r, err := openRepository(ctx, res.Repo, s.scratch())
	if err != nil {
		return "", err
	}
	defer r.close()
	return r.remote(ctx, remote)
}

// remote returns the push address of a remote.
func (r *repository) remote(ctx context.Context, name string) (string, error) {
	if !IsRemoteName(name) {
		return "", fmt.Errorf("%q is not the name of a remote; an address is not taken", name)
	}
	for _, key := range []string{"pushurl", "url"} {
		to, err := git{}.line(ctx, "config", "--file", filepath.Join(r.common, "config"), "--no-includes", "--get", "remote."+name+"."+key)
		if to != "" || err != nil {
			return to, err
		}
	}
	return "", fmt.Errorf("%s has no remote %s; add it: git remote add %s URL", r.path, name, name)
}

// transport returns the git settings for connecting to an address.
func transport(address string, login Login) ([]string, error) {
	if filepath.IsAbs(address) {
		return nil, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" || u.Host == "" {
		if login.Token != "" || strings.Contains(address, "::") || strings.HasPrefix(address, "-") || !strings.Contains(address, ":") {
			return nil, errors.New("its address is neither https://… nor a path of this machine; with SSH, leave out the secret")
		}
		return []string{"protocol.ssh.allow=always"}, nil // user@host:path
	}
	local := u.Hostname() == "127.0.0.1" || u.Hostname() == "localhost" || u.Hostname() == "::1"
	switch {
	case u.User != nil && u.Scheme != "ssh":
		return nil, errors.New("its address holds a name or a token; remove it there (git remote set-url), and grant it as a secret")
	case u.Scheme == "ssh" && login.Token == "":
		return []string{"protocol.ssh.allow=always"}, nil
	case u.Scheme == "https" || u.Scheme == "http" && local:
	default:
		return nil, fmt.Errorf("a token is not sent by %s; use an https address", u.Scheme)
	}

	// A redirect would forward the header.
	settings := []string{"protocol." + u.Scheme + ".allow=always", "http.followRedirects=false"}
	if login.Token != "" {
		name := login.Name
		if name == "" {
			name = "x-access-token"
		}
		settings = append(settings, "http.extraHeader=Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte(name+":"+login.Token)))
	}
	return settings, nil
}

// configEnv returns environment variables for settings. The environment is not visible to other
// users of the machine.
func configEnv(settings []string) []string {
	if len(settings) == 0 {
		return nil
	}
	env := []string{"GIT_CONFIG_COUNT=" + strconv.Itoa(len(settings))}
	for i, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
	return env
}

// explain adds a remedy to common errors of git push.
func explain(err error, remote, branch string) error {
	failed, ok := errors.AsType[*gitError](err)
	if !ok {
		return err
	}
	for said, why := range map[string]string{
		"could not read Username":   "the remote wants a login: grant a secret",
		"Authentication failed":     "the remote refused the token: renew the secret",
		"error: 401":                "the remote refused the token: renew the secret",
		"error: 403":                "the token may not write to the repository",
		"not found":                 "there is no such repository, or the token may not see it",
		"non-fast-forward":          "the remote has other commits on a branch " + branch + ": remove it there, or let `branch:` name a new one for each run",
		"fetch first":               "the remote has other commits on a branch " + branch + ": remove it there, or let `branch:` name a new one for each run",
		"Permission denied":         "the remote refused the key",
		"Could not resolve host":    "the host of the remote cannot be found",
		"protected branch":          "the branch is protected there",
		"unable to update url base": "the remote redirects: set its new address with git remote set-url",
	} {
		if strings.Contains(failed.text, said) {
			return fmt.Errorf("remote %s: %s (%w)", remote, why, err)
		}
	}
	return err
}
