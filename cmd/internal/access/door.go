package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"rouse/cmd/internal/api"
)

// Door is the access to a daemon over the network, if it listens there. The zero value is closed.
type Door struct {
	opened  atomic.Pointer[Access]
	problem atomic.Pointer[string] // why it is closed although it should be open
}

// Open opens the door.
func (d *Door) Open(a *Access) { d.opened.Store(a) }

// Fail records why the door cannot be opened.
func (d *Door) Fail(why string) { d.problem.Store(&why) }

// URL returns the address of a page, or "" if there are no pages.
func (d *Door) URL(path string) string {
	if on := d.opened.Load(); on != nil {
		return on.URL(path)
	}
	return ""
}

// Problem returns why there are no pages although they are configured, or "".
func (d *Door) Problem() string {
	if why := d.problem.Load(); why != nil {
		return *why
	}
	return ""
}

// access returns the Access, or an error if there are no pages.
func (d *Door) access() (*Access, error) {
	if on := d.opened.Load(); on != nil {
		return on, nil
	}
	return nil, &api.Error{Status: http.StatusConflict, Message: cmp.Or(d.Problem(), "the dashboard is off (dashboard: {listen: off})")}
}

// Access returns the address of the pages and the sessions.
func (d *Door) Access(context.Context) (api.Access, error) {
	on, err := d.access()
	if err != nil {
		return api.Access{}, err
	}

	out := api.Access{URL: on.URL("/"), TokenFile: on.TokenFile(), Sessions: []api.Session{}}
	for _, s := range on.Sessions() {
		out.Sessions = append(out.Sessions, api.Session{ID: s.ID, CreatedAt: api.At(s.CreatedAt), ExpiresAt: api.At(s.ExpiresAt), UsedAt: api.At(s.UsedAt), Agent: s.Agent})
	}
	return out, nil
}

// Login returns a link that logs a browser in once and opens path.
func (d *Door) Login(_ context.Context, path string) (api.Login, error) {
	on, err := d.access()
	if err != nil {
		return api.Login{}, err
	}

	url, expires := on.Login(path)
	return api.Login{URL: url, ExpiresAt: api.At(expires)}, nil
}

// EndSession logs a browser out.
func (d *Door) EndSession(_ context.Context, id string) error {
	on, err := d.access()
	if err != nil {
		return err
	}

	err = on.End(id)
	if errors.Is(err, ErrNoSession) {
		return &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("%v: %q; see: rouse dashboard --sessions", err, id), Usage: true}
	}
	return err
}

// RotateToken replaces the token and ends all sessions.
func (d *Door) RotateToken(context.Context) error {
	on, err := d.access()
	if err != nil {
		return err
	}
	return on.Rotate()
}
