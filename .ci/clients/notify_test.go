package clients

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/webhook"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestStandardWebhooks: the library of Standard Webhooks accepts requests that rouse signs, and signs requests that rouse accepts.
func TestStandardWebhooks(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	body, now := []byte(`{"type":"notice"}`), time.Now()
	hook, err := standard.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}

	h, err := webhook.Standard.Sign(secret, webhook.Delivery{ID: "evt_7"}, body, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Verify(body, h); err != nil {
		t.Error(err)
	}

	signature, err := hook.Sign("evt_8", now, body)
	if err != nil {
		t.Fatal(err)
	}
	h = http.Header{}
	h.Set(standard.HeaderWebhookID, "evt_8")
	h.Set(standard.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(standard.HeaderWebhookSignature, "v1,bm90IGl0 "+signature)
	if d, err := webhook.Standard.Verify(secret, h, body, now); err != nil || d.ID != "evt_8" || d.Event != "notice" {
		t.Errorf("%+v, %v", d, err)
	}
}

// mailTo opens the channel of an address.
func mailTo(t *testing.T, url string) notify.Channel {
	t.Helper()
	c, err := notify.Open(notify.Settings{Kind: "url", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// letters is a mail server.
type letters struct{ got chan string }

func (l letters) NewSession(*smtp.Conn) (smtp.Session, error) { return l, nil }
func (letters) Reset()                                        {}
func (letters) Logout() error                                 { return nil }
func (letters) Mail(string, *smtp.MailOptions) error          { return nil }
func (letters) Rcpt(to string, _ *smtp.RcptOptions) error {
	if to != "me@example.net" {
		return errors.New("nobody of that name is here")
	}
	return nil
}
func (l letters) Data(r io.Reader) error {
	all, err := io.ReadAll(r)
	l.got <- string(all)
	return err
}

// A notice by mail reaches a real server; a title with a line break adds no header.
func TestMail(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	box := letters{make(chan string, 1)}
	server := smtp.NewServer(box)
	server.Domain = "localhost"
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })

	to := "smtp://" + l.Addr().String() + "/?from=rouse@example.net&to=me@example.net&auth=None&encryption=None&usestarttls=no"
	m := notify.Message{Notice: ledger.Notice{ID: 7, Run: 3, Job: "mail", Agent: "clerk", Title: "done\r\nBcc: other@example.net", Body: "see it", Outcome: domain.OutcomeSuccess, CreatedAt: time.Now()},
		Link: "http://127.0.0.1:7311/runs/3"}
	if receipt, err := mailTo(t, to).Send(t.Context(), m); err != nil || !receipt.Proven {
		t.Fatalf("%+v, %v", receipt, err)
	}
	header, body, _ := strings.Cut(<-box.got, "\r\n\r\n")
	if !strings.Contains(header, "Subject: ") || strings.Contains(header, "\nBcc:") || !strings.Contains(body, m.Link) {
		t.Errorf("%s\n\n%s", header, body)
	}

	_, err = mailTo(t, strings.ReplaceAll(to, "to=me@", "to=you@")).Send(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "nobody of that name is here") {
		t.Errorf("of a mail that was refused: %v", err)
	}
}
