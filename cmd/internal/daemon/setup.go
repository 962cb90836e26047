package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/secret"
	"rouse/internal/fspath"
	"rouse/internal/text"
)

// Setup is a configuration with its plan. It never changes: a reload replaces it as a whole.
type Setup struct {
	Config  *config.Config
	plan    *Plan
	problem error // why Config is empty
	at      time.Time
	restart []string           // settings in it that need a restart to take effect
	wanted  []config.SecretRef // the secrets that a configuration with a problem refers to
}

// known refuses unknown names, and suggests the nearest. It also refuses an unusable configuration.
func (s *Setup) known(job, agent string) error {
	if err := s.usable(); err != nil {
		return err
	}
	if names := s.JobNames(); job != "" && !slices.Contains(names, job) {
		return &api.Error{Status: 404, Message: text.NoSuch("job", job, names), Usage: true}
	}
	if names := s.agentNames(); agent != "" && !slices.Contains(names, agent) {
		return &api.Error{Status: 404, Message: text.NoSuch("agent", agent, names), Usage: true}
	}
	return nil
}

func (s *Setup) JobNames() []string {
	var out []string
	for _, j := range s.Config.Jobs {
		out = append(out, string(j.Name))
	}
	return out
}

func (s *Setup) agentNames() []string {
	var out []string
	for _, a := range s.Config.Agents {
		out = append(out, string(a.Name))
	}
	return out
}

// Hints returns what the start-up screen shows besides the jobs.
func (s *Setup) Hints() []string {
	if c := s.checkModels(); !c.OK {
		return []string{c.Detail + "; their runs stay queued"}
	}
	return nil
}

// FlagHint repeats the flags that a command needs to find this home again.
func (s *Setup) FlagHint() string {
	if len(s.Config.Files) == 0 || filepath.Base(s.Config.Files[0]) == "rouse.yaml" {
		return ""
	}

	// The hint is for the shell it is shown in, where a relative path reads better.
	path := s.Config.Files[0]
	if wd, err := os.Getwd(); err == nil {
		path = fspath.Shorten(wd, path)
	}
	return " --config " + path
}

// usable returns why the configuration cannot be used.
func (s *Setup) usable() error {
	if s.problem == nil {
		return nil
	}
	return &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("the configuration cannot be used:\n%v", s.problem)}
}

// job returns a configured job, or nil.
func (s *Setup) job(name string) *config.Job {
	if i := slices.Index(s.JobNames(), name); i >= 0 {
		return &s.Config.Jobs[i]
	}
	return nil
}

// Load reads the configuration. home replaces its home unless "". A missing secret blocks only its jobs.
func Load(path, home string) (*config.Config, error) { return LoadText(path, home, nil) }

// LoadText is Load for a configuration that is not written yet, as if it were the file at path.
func LoadText(path, home string, text []byte) (*config.Config, error) {
	o := loadOptions(path, home, os.Getenv)
	o.Text, o.HoldSecrets = text, true
	return config.Load(o)
}

// Check is Load for who wants to know what is wrong: a secret that is missing is.
func Check(path, home string) (*config.Config, error) { return CheckWith(path, home, os.Getenv) }

// CheckWith is Check with other variables than this process has.
func CheckWith(path, home string, getenv func(string) string) (*config.Config, error) {
	return config.Load(loadOptions(path, home, getenv))
}

func loadOptions(path, home string, getenv func(string) string) config.LoadOptions {
	return config.LoadOptions{Path: path, Home: home, Getenv: getenv, Tools: agent.Specs(), Secret: finder(path, home),
		Ollama: func() (string, string, bool) { return FindOllama(getenv) }}
}

// finder looks up secrets for a configuration. The store is opened by the first lookup.
func finder(path, home string) func(string) (string, bool, error) {
	open := sync.OnceValues(func() (*secret.Store, error) {
		// The home may be set in the very file that is being loaded, so it is read ahead.
		dir, err := home, error(nil)
		if dir == "" {
			dir, err = config.Home(path, os.Getenv)
		}
		if err != nil {
			return nil, err
		}
		return secret.New(secret.Options{Home: dir})
	})
	return func(name string) (string, bool, error) {
		store, err := open()
		if err != nil {
			return "", false, err
		}
		value, _, err := store.Get(name)
		if errors.Is(err, secret.ErrNotSet) { // the configuration reports it, with the place that refers to it
			return "", false, nil
		}
		return value, err == nil, err
	}
}
