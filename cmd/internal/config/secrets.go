package config

// SecretRef is a place that asks for a secret of the store.
type SecretRef struct {
	Name string
	Path string // agents[0].grants.secrets[0]
	Of   string // what Path is in, with its name: model claude; "" of a setting of the daemon
	At   Position
}

// Held is a place that lacks its secret: what it is in cannot work before that can be had.
type Held struct {
	Name string // of the secret
	Path string // models[0].api_key
	At   Position
	Text string // what is wrong and what to do
}
