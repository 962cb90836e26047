package api

// SignIn is what is kept of a service that a skill signs in to for an agent; its tokens are shown to nobody.
type SignIn struct {
	Name      string   `json:"name"` // AGENT/SKILL/PROVIDER
	Agent     string   `json:"agent"`
	Skill     string   `json:"skill"`
	Provider  string   `json:"provider"`
	Service   string   `json:"service"` // as people call it
	Status    string   `json:"status"`  // authorized, expired, unauthorized
	Scopes    []string `json:"scopes"`
	Since     Time     `json:"since"`
	ExpiresAt Time     `json:"expires_at"` // of the token that is there
	Renews    bool     `json:"renews"`     // by itself
	Waiting   bool     `json:"waiting"`    // its owner was given a link, and did not come back yet
}

// SignInName names one.
type SignInName struct {
	Name string `json:"name"`
}
