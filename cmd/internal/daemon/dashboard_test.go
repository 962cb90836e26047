package daemon

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
)

// openHere opens a daemon on a new home.
func openHere(t *testing.T, config string) *Daemon {
	t.Helper()
	cfg, err := plan.Load(filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": config}), "rouse.yaml"), "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Serves: true, Logger: logging.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// listenAt makes a daemon listen at its configured address, independent of the environment of
// other tests.
func listenAt(t *testing.T, d *Daemon, change func(*plan.Setup)) (address string) {
	t.Helper()
	next := *d.Current()
	cfg := *next.Config
	next.Config = &cfg
	change(&next)
	d.setup.Store(&next)

	on := d.openDashboard(t.Context())
	if on == nil {
		return ""
	}
	over := make(chan error, 1)
	go func() { over <- on.server.run() }()
	t.Cleanup(func() {
		if err := on.server.stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	return on.server.listener.Addr().String()
}

const oneAgent = "version: 1\nhome: ./home\nagents: [{name: ann}]\n"

// If the address is in use, the daemon works without it. The status, doctor and requests for a
// page report the problem.
func TestDashboardOfATakenPort(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	d := openHere(t, oneAgent)
	listenAt(t, d, func(s *plan.Setup) { s.Config.Dashboard.Listen = taken.Addr().String() })
	st, err := d.status.Status(t.Context())
	if err != nil || st.Dashboard != "" || !strings.Contains(st.DashboardProblem, taken.Addr().String()) {
		t.Errorf("%+v, %v", st, err)
	}
	if c := d.status.Checks()[0]; c.OK || !strings.Contains(c.Detail, "give another address") {
		t.Errorf("%+v", c)
	}
	if _, err := d.Door.Login(t.Context(), "/"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
	if link := d.noticeLink(t.Context(), ledger.Notice{Job: "j"}); link != "" {
		t.Errorf("a notice leads to %s", link)
	}

	off := openHere(t, oneAgent)
	listenAt(t, off, func(s *plan.Setup) { s.Config.Dashboard.Listen = "off" })
	if _, err := off.Door.Access(t.Context()); err == nil || !strings.Contains(err.Error(), "the dashboard is off") || off.Door.Problem() != "" {
		t.Errorf("%v, %q", err, off.Door.Problem())
	}
}

// With a certificate, the dashboard is available by TLS only, under the names of the certificate.
func TestDashboardByTLS(t *testing.T) {
	t.Parallel()
	d := openHere(t, oneAgent)
	cert, key, pool := certificate(t)
	at := listenAt(t, d, func(s *plan.Setup) {
		cfg, err := plan.Load(filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": fmt.Sprintf("version: 1\ndashboard: {hosts: [box.example.net], tls: {cert: %s, key: %s}}\n", cert, key)}), "rouse.yaml"), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s.Config.Dashboard = cfg.Dashboard
		s.Config.Dashboard.Listen = "127.0.0.1:0"
	})

	if url := d.Door.URL("/"); url != "https://box.example.net/" {
		t.Fatalf("%q %s", url, d.Door.Problem())
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", at)
		}}}
	get := func(url string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}

	login, err := d.Door.Login(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	if resp := get(login.URL); resp.StatusCode != http.StatusFound || len(resp.Cookies()) != 1 || !resp.Cookies()[0].Secure {
		t.Errorf("%s %v", resp.Status, resp.Cookies())
	}
	if resp := get("http://" + at + "/"); resp.StatusCode != http.StatusBadRequest { // "client sent an HTTP request to an HTTPS server"
		t.Errorf("without TLS: %s", resp.Status)
	}
}

// certificate writes a self-signed certificate for box.example.net.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"box.example.net"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(cert, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return cert, key, pool
}

// Every notice links to its page: the question of its run, its run, or its job.
func TestNoticesLead(t *testing.T) {
	t.Parallel()
	f := newAPIFixture(t)
	run, item := f.reported(), f.question()
	number := func(text string) (n int64) {
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, c := range []struct {
		of   ledger.Notice
		want string
	}{
		{ledger.Notice{Run: number(run.ID), Job: "report"}, "/runs/" + run.ID},
		{ledger.Notice{Run: number(f.itemRun(item)), Job: "ask"}, "/inbox/" + item},
		{ledger.Notice{Run: number(run.ID), Job: "report", Agent: "ann", ViewRef: "by what"}, "/agents/ann/views?view=by+what"},
		{ledger.Notice{Job: "report"}, "/jobs/report"},
		{ledger.Notice{}, "/health"},
	} {
		if got := f.noticeLink(t.Context(), c.of); got != f.base+c.want {
			t.Errorf("%+v leads to %s, want %s", c.of, got, f.base+c.want)
		}
	}
}

// Requests from the network cannot write to or name a path of this machine.
func TestPathsOfTheNetwork(t *testing.T) {
	t.Parallel()
	f := newAPIFixture(t)
	f.reported()
	file := filepath.Join(t.TempDir(), "program")
	for path, body := range map[string]string{
		"/v1/agents/ann/backups": fmt.Sprintf(`{"file":%q,"force":true}`, file),
		"/v1/ledger/backups":     fmt.Sprintf(`{"file":%q,"force":true}`, file),
		"/v1/agents/ann/restore": fmt.Sprintf(`{"from":%q,"force":true}`, file),
	} {
		resp := f.send(http.MethodPost, path, "application/json", strings.NewReader(body), nil)
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", path, resp.Status)
		}
		if _, err := os.Stat(file); err == nil {
			t.Fatalf("%s has written %s", path, file)
		}
	}

	// The owner's commands can.
	if _, err := f.client.Backup(t.Context(), "/v1/agents/ann/backups", api.BackupRequest{File: api.Path(file)}, func(int64, int64) {}); err != nil {
		t.Error(err)
	}
}
