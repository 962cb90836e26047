package api

// LoginRequest asks for a link that logs a browser in.
type LoginRequest struct {
	Path string `json:"path,omitempty"` // of the page that it leads to; "" is the first
}

// Login is a link that logs a browser in, once.
type Login struct {
	URL       string `json:"url"`
	ExpiresAt Time   `json:"expires_at"`
}

// Access says where the pages are and who is logged in.
type Access struct {
	URL       string    `json:"url"`
	TokenFile string    `json:"token_file"` // that holds what programs send as Authorization: Bearer
	Sessions  []Session `json:"sessions"`
}

// Session is a browser that is logged in.
type Session struct {
	ID        string `json:"id"`
	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at"`
	UsedAt    Time   `json:"used_at"` // to the hour
	Agent     string `json:"agent"`   // what it calls itself
}
