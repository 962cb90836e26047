package plan

import (
	"errors"
	"os"
	"sync"

	"rouse/agent"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/secret"
)

// Load reads the configuration. home replaces its home unless "". A missing secret blocks only its jobs.
func Load(path, home string) (*config.Config, error) { return LoadText(path, home, nil) }

// LoadText is Load for a configuration that is not written yet, as if it were the file at path.
func LoadText(path, home string, text []byte) (*config.Config, error) {
	o := loadOptions(path, home, os.Getenv)
	o.Text, o.HoldSecrets = text, true
	return load.Config(o, agent.Specs())
}

// Check is Load, but a missing secret is an error.
func Check(path, home string) (*config.Config, error) { return CheckWith(path, home, os.Getenv) }

// CheckWith is Check with other variables than this process has.
func CheckWith(path, home string, getenv func(string) string) (*config.Config, error) {
	return load.Config(loadOptions(path, home, getenv), agent.Specs())
}

func loadOptions(path, home string, getenv func(string) string) yaml.Options {
	return yaml.Options{Path: path, Home: home, Getenv: getenv, Secret: finder(path, home),
		Ollama: func() (string, string, bool) { return FindOllama(getenv) }}
}

// finder looks up secrets for a configuration. The store is opened by the first lookup.
func finder(path, home string) func(string) (string, bool, error) {
	open := sync.OnceValues(func() (*secret.Store, error) {
		// The home may be set in the very file that is being loaded, so it is read ahead.
		dir, err := home, error(nil)
		if dir == "" {
			dir, err = yaml.Home(path, os.Getenv)
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
