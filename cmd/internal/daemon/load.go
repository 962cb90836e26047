package daemon

import (
	"errors"
	"os"

	"rouse/agent"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/secret"
)

func Load(path, home string) (*config.Config, error) {
	return config.Load(config.LoadOptions{Path: path, Home: home, Getenv: os.Getenv, Tools: agent.Specs(), Secret: finder(path, home),
		Ollama: func() (string, string, bool) { return FindOllama(os.Getenv) }})
}

// finder finds secrets for a configuration. The store is opened when the first is asked for.
func finder(path, home string) func(string) (string, bool, error) {
	var store *secret.Store
	return func(name string) (string, bool, error) {
		if store == nil {
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
		if errors.Is(err, secret.ErrNotSet) {
			return "", false, nil
		}

		return value, err == nil, err
	}
}
