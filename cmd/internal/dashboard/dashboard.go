package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/a-h/templ"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/web"
)

// Options are what pages are made of. All but the version are needed.
type Options struct {
	API     web.Options // the ledger, and what stands behind the API
	Version string
}

// site answers for all pages.
type site struct {
	ledger  *ledger.Ledger
	answers *web.Server
	backend web.Options
	version string
	log     *slog.Logger
	assets  *assets
}

// New returns the pages, to be mounted at /. It checks no access.
func New(o Options) (http.Handler, error) {
	answers, err := web.NewServer(o.API)
	if err != nil {
		return nil, err
	}
	files, err := newAssets()
	if err != nil {
		return nil, err
	}
	if o.API.Logger == nil {
		o.API.Logger = slog.New(slog.DiscardHandler)
	}

	s := &site{ledger: o.API.Ledger, answers: answers, backend: o.API, version: o.Version, log: o.API.Logger, assets: files}
	mux := http.NewServeMux()
	for _, routes := range []func(*http.ServeMux){s.todayRoutes, s.inboxRoutes, s.runsRoutes, s.runRoutes, s.jobRoutes, s.agentRoutes, s.dataRoutes, s.workspaceRoutes, s.skillRoutes, s.healthRoutes, s.incidentRoutes} {
		routes(mux)
	}
	mux.Handle("GET /assets/{file}", http.HandlerFunc(s.assets.serve))
	mux.Handle("GET /live", http.HandlerFunc(s.live))
	mux.Handle("/", s.show(func(r *http.Request, _ page) (templ.Component, error) {
		return nil, &api.Error{Status: http.StatusNotFound, Message: "there is no page " + r.URL.Path}
	}))
	return mux, nil
}

// show answers with a page.
func (s *site) show(make func(*http.Request, page) (templ.Component, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.newPage(r)
		if err != nil {
			s.fail(w, r, p, err)
			return
		}

		body, err := make(r, p)
		if r.Context().Err() != nil {
			return // whoever asked has left, and that is no failure
		}
		if err != nil {
			s.fail(w, r, p, err)
			return
		}
		s.write(w, r, http.StatusOK, body)
	})
}

// maxForm bounds what is posted, in bytes; a file has a bound of its own.
const maxForm = 1 << 20

// do does what a form asks for, and goes on to the page that do names.
func (s *site) do(do func(*http.Request) (to string, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			if err := r.ParseForm(); err != nil {
				s.failPosted(w, r, &api.Error{Status: http.StatusBadRequest, Message: "what was sent was not understood: " + err.Error()})
				return
			}
		}

		to, err := do(r)
		if err != nil {
			s.failPosted(w, r, err)
			return
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
	})
}

func (s *site) failPosted(w http.ResponseWriter, r *http.Request, err error) {
	p, pageErr := s.newPage(r)
	s.fail(w, r, p, errors.Join(err, pageErr))
}

// fail says what was wrong, and what to do.
func (s *site) fail(w http.ResponseWriter, r *http.Request, p page, err error) {
	failure := s.answers.Failure(r, err)
	p.Title = http.StatusText(failure.Status)
	s.write(w, r, failure.Status, failurePage(p, failure, back(r)))
}

// write sends a page whole, so that one that cannot be made is an error and no half page.
func (s *site) write(w http.ResponseWriter, r *http.Request, status int, body templ.Component) {
	var page bytes.Buffer
	if err := body.Render(context.WithoutCancel(r.Context()), &page); err != nil {
		s.log.Error("a page could not be made", "path", r.URL.Path, "error", err)
		http.Error(w, "this page could not be made; the log of rouse says why", http.StatusInternalServerError)
		return
	}

	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	// The next page may show what was answered or undone a moment ago.
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept-Encoding")
	if err := send(w, r, status, page.Bytes()); err != nil && r.Context().Err() == nil {
		s.log.Warn("a page could not be sent", "path", r.URL.Path, "error", err)
	}
}

// packers are kept from page to page: a new one costs most of a megabyte. The fastest level takes a third of the time of the
// usual one, and a tenth more bytes.
var packers = sync.Pool{New: func() any {
	packed, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is one that there is
	return packed
}}

// send sends bytes, compressed for who can read that.
func send(w http.ResponseWriter, r *http.Request, status int, content []byte) error {
	if !readsGzip(r) {
		w.WriteHeader(status)
		_, err := w.Write(content)
		return err
	}

	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	packed := packers.Get().(*gzip.Writer)
	defer packers.Put(packed)

	packed.Reset(w)
	if _, err := packed.Write(content); err != nil {
		return err
	}
	return packed.Close()
}

func readsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// number reads an id of the path.
func number(r *http.Request, name, thing string) (int64, error) {
	n, err := strconv.ParseInt(r.PathValue(name), 10, 64)
	if err != nil || n < 1 {
		return 0, &api.Error{Status: http.StatusNotFound, Message: thing + "s have numbers, and " + strconv.Quote(r.PathValue(name)) + " is none"}
	}
	return n, nil
}

// back is the page that a form was on. It is a path of ours: what else is written there is not followed.
func back(r *http.Request) string {
	for _, text := range []string{r.PostFormValue("back"), r.Referer()} {
		u, err := url.Parse(text)
		// A browser takes /\host for another host, as it does //host.
		if err == nil && strings.HasPrefix(u.Path, "/") && !strings.HasPrefix(u.Path, "//") && !strings.Contains(u.Path, `\`) && (u.Host == "" || u.Host == r.Host) {
			return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
		}
	}
	return "/"
}

// link makes the address of a page: its parts are escaped, and the query is what follows in pairs.
func link(parts []string, query ...string) string {
	var out strings.Builder
	for _, part := range parts {
		out.WriteString("/" + url.PathEscape(part))
	}

	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			q.Set(query[i], query[i+1])
		}
	}
	if len(q) > 0 {
		out.WriteString("?" + q.Encode())
	}
	return out.String()
}

func jobPath(name string) string   { return link([]string{"jobs", name}) }
func agentPath(name string) string { return link([]string{"agents", name}) }
func runPath(id string) string     { return link([]string{"runs", id}) }

// runsPath is the listing of the runs that fit a filter, given in pairs.
func runsPath(query ...string) string { return link([]string{"runs"}, query...) }

// before is the number from which a listing goes on, 0 where it begins.
func before(r *http.Request, of string) (int64, error) {
	text := r.URL.Query().Get("before")
	if text == "" {
		return 0, nil
	}

	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, &api.Error{Status: http.StatusBadRequest, Message: "before is the number of " + of + ", and " + strconv.Quote(text) + " is none"}
	}
	return n, nil
}
