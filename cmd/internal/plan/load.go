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

// Load reads the configuration. If home is not empty, it replaces the configured home. A missing
// secret blocks only the jobs that use it.
func Load(path, home string) (*config.Config, error) { return LoadText(path, home, nil) }

// LoadText loads text as if it were the content of the file at path. Otherwise it works like Load.
func LoadText(path, home string, text []byte) (*config.Config, error) {
	o := loadOptions(path, home, os.Getenv)
	o.Text, o.HoldSecrets = text, true
	return load.Config(o, agent.Specs())
}

// Check works like Load, but a missing secret is an error.
func Check(path, home string) (*config.Config, error) { return CheckWith(path, home, os.Getenv) }

// CheckWith works like Check, but reads environment variables with getenv.
func CheckWith(path, home string, getenv func(string) string) (*config.Config, error) {
	return load.Config(loadOptions(path, home, getenv), agent.Specs())
}

func loadOptions(path, home string, getenv func(string) string) yaml.Options {
	return yaml.Options{Path: path, Home: home, Getenv: getenv, Secret: finder(path, home),
		Ollama: func() (string, string, bool) { return FindOllama(getenv) }}
}

// finder returns a function that looks up secrets for a configuration. The first lookup opens the
// store.
func finder(path, home string) func(string) (string, bool, error) {
	open := sync.OnceValues(func() (*secret.Store, error) {
		// The configuration being loaded may set the home, so read the home first.
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
		if errors.Is(err, secret.ErrNotSet) { // the configuration reports it with its position
			return "", false, nil
		}
		return value, err == nil, err
	}
}
