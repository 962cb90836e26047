package config

// SecretRef is a reference to a secret of the store.
type SecretRef struct {
	Name string
	Path string // agents[0].grants.secrets[0]
	// Of is the kind and name of the item that contains Path, such as model claude. It is empty
	// for a setting of the daemon.
	Of string
	At Position
}

// Held is a setting with a missing secret. The item that contains it cannot work without it.
type Held struct {
	Name string // of the secret
	Path string // models[0].api_key
	At   Position
	Text string // problem and remedy
}
