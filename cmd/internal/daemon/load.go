package daemon

import (
	"errors"
	"os"

	"rouse/agent"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/secret"
)

// Load reads the configuration; home overrides the one it names, "" does not. A secret that is missing blocks the jobs that need it, and
// nothing else.
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
