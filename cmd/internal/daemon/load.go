package daemon

import (
	"errors"
	"os"

	"rouse/agent"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/secret"
)

// Load reads the configuration; home overrides the one it names, "" does not.
func Load(path, home string) (*config.Config, error) { return LoadWith(path, home, os.Getenv) }

// LoadWith is Load with other variables than this process has.
func LoadWith(path, home string, getenv func(string) string) (*config.Config, error) {
	return load(path, home, nil, getenv)
}

// LoadText is Load for a configuration that is not written yet, as if it were the file at path.
func LoadText(path, home string, text []byte) (*config.Config, error) {
	return load(path, home, text, os.Getenv)
}

func load(path, home string, text []byte, getenv func(string) string) (*config.Config, error) {
	return config.Load(config.LoadOptions{Path: path, Text: text, Home: home, Getenv: getenv, Tools: agent.Specs(), Secret: finder(path, home),
		Ollama: func() (string, string, bool) { return FindOllama(getenv) }})
}

// finder looks up secrets for a configuration. The store is opened by the first lookup.
func finder(path, home string) func(string) (string, bool, error) {
	var store *secret.Store
	return func(name string) (string, bool, error) {
		if store == nil {
			// The home may be set in the very file that is being loaded, so it is read ahead.
			dir, err := home, error(nil)
			if dir == "" {
				dir, err = config.Home(path, os.Getenv)
			}

			if err == nil {
				store, err = secret.New(secret.Options{Home: dir})
			}
			if err != nil {
				return "", false, err
			}
		}

		value, _, err := store.Get(name)
		// Not found is for the configuration to report, with the place that refers to it.
		if errors.Is(err, secret.ErrNotSet) {
			return "", false, nil
		}

		return value, err == nil, err
	}
}
