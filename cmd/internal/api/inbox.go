package api

// Item is something that waits for a person.
type Item struct {
	ID        string   `json:"id"`
	Run       string   `json:"run"`
	Runs      []string `json:"runs"` // that the answer is for: others may ask for the same
	Job       string   `json:"job"`
	Agent     string   `json:"agent"`
	Kind      string   `json:"kind"`
	Title     string   `json:"title"`
	Message   string   `json:"message"`
	Options   []string `json:"options"`
	Multiple  bool     `json:"multiple"`
	Action    string   `json:"action"` // of an approval what would be done, exactly; else the command that answers it
	Tool      string   `json:"tool,omitempty"`
	Hash      string   `json:"hash,omitempty"` // of the action
	State     string   `json:"state"`          // open, answered, expired, withdrawn
	Answer    string   `json:"answer"`
	Reason    string   `json:"reason,omitempty"` // of a denial
	CreatedAt Time     `json:"created_at"`
	ExpiresAt Time     `json:"expires_at"`
}

// Answer answers an item.
type Answer struct {
	Text   string `json:"text"`
	Reason string `json:"reason,omitempty"` // of a denial, for the agent
	Kind   string `json:"kind,omitempty"`   // of items that may be answered so; "" for any
}

// Grant is what an owner has allowed an agent's runs until they revoke it.
type Grant struct {
	ID        string `json:"id"`
	Agent     string `json:"agent"`
	Tool      string `json:"tool"` // "" of a job's definition
	Action    string `json:"action"`
	Item      string `json:"item"` // of the inbox, in which it was given
	CreatedAt Time   `json:"created_at"`
}

// Memory is an agent whose database and files are not trusted any more, since a run wrote them
// that had read untrusted content.
type Memory struct {
	Agent string `json:"agent"`
	Run   string `json:"run"`
	At    Time   `json:"at"`
}
