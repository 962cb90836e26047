package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/webhook"
	"rouse/internal/dial"
)

// sendTimeout is the maximum time for a daemon to accept a delivery.
const sendTimeout = 30 * time.Second

func newWebhooks(env *cli) *cobra.Command {
	cmd := withJSON(&cobra.Command{
		Use:   "webhooks",
		Short: "Lists the webhooks of jobs: where other programs send their requests",
		RunE:  showing(env, "/v1/webhooks", listWebhooks),
	})
	cmd.AddCommand(newWebhookSend(env))
	return cmd
}

func listWebhooks(s *session, hooks []api.Webhook) error {
	none := "no job has a webhook; to give one to a job: webhook: {path: /hooks/NAME, secret: secret:NAME}"
	return list(s.out, hooks, none, "JOB ADDRESS SCHEME STATE LAST", func(h api.Webhook) []string {
		state, last := "takes requests", "–"
		switch {
		case !h.Enabled:
			state = "the job is disabled"
		case h.Refuses != "":
			state = "refuses requests: " + h.Refuses
		case h.URL == "":
			state = "nobody listens: rouse serve"
		}
		if h.LastRun != "" {
			last = fmt.Sprintf("run %s, %s, %s", h.LastRun, when(h.LastAt, s.now()), cmp.Or(h.LastOutcome, "not ended"))
		}
		return []string{h.Job, cmp.Or(h.URL, h.Path), h.Scheme, state, last}
	})
}

type sendOptions struct {
	at              *cli
	body, id, event string
	kind            string
}

func newWebhookSend(env *cli) *cobra.Command {
	o := sendOptions{at: env}
	cmd := &cobra.Command{
		Use:   "send JOB",
		Short: "Sends a request to the webhook of a job, signed as its sender signs",
		Long: `Sends a request to the running daemon as the sender of the webhook would: signed with its
secret by its scheme, over the network address. The same --id again is the same delivery,
and gives the run of the first time.`,
		Example: `  rouse webhooks send bank --body transfer.json
  echo '{"action":"opened"}' | rouse webhooks send issues --body - --event issues`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.send(cmd, args[0]) },
	}

	cmd.Flags().StringVar(&o.body, "body", "", "`file` with the body, - for standard input (default {})")
	cmd.Flags().StringVar(&o.id, "id", "", "what the sender calls this delivery (default a new one)")
	cmd.Flags().StringVar(&o.event, "event", "", "what its sender calls the event, where a header says so (github, gitlab)")
	cmd.Flags().StringVar(&o.kind, "content-type", "application/json", "of the body")
	return withJSON(cmd)
}

func (o sendOptions) send(cmd *cobra.Command, job string) error {
	hook, err := o.hook(job)
	if err != nil {
		return err
	}
	body := []byte("{}")
	switch o.body {
	case "":
	case "-":
		body, err = io.ReadAll(cmd.InOrStdin())
	default:
		body, err = os.ReadFile(o.body)
	}
	if err != nil {
		return err
	}
	var hooks []api.Webhook
	err = o.at.with(toChange, func(s *session, _ []string) error { return s.get("/v1/webhooks", nil, &hooks) })(cmd, nil)
	at := slices.IndexFunc(hooks, func(h api.Webhook) bool { return h.Job == job })
	switch {
	case err != nil:
		return err
	case at < 0:
		return fmt.Errorf("the daemon knows no webhook of %s; has it read the configuration? rouse doctor", job)
	case hooks[at].URL == "":
		return errors.New("nobody listens for webhooks; start the daemon: rouse serve")
	}

	headers, err := webhook.Scheme(hook.Scheme).Sign(hook.Secret, webhook.Delivery{ID: cmp.Or(o.id, "rouse-"+rand.Text()), Event: o.event}, body, time.Now())
	if err != nil {
		return err
	}
	status, answer, err := o.post(cmd.Context(), hooks[at].URL, headers, body)
	if err != nil {
		return err
	}
	said := fmt.Sprintf("%s answers %d %s", hook.Path, status, http.StatusText(status))
	if answer.Error != "" {
		return fmt.Errorf("%s: %s", said, answer.Error)
	}
	if answer.Run != "" {
		said = "run " + answer.Run
	}
	if answer.Repeated {
		said += " was started by this delivery before"
	}
	return jsonOr(cmd, answer, func() error { return sayf(cmd.OutOrStdout(), "%s\n", said) })
}

// hook returns the webhook of a job from the configuration, because only that has the secret.
func (o sendOptions) hook(job string) (*config.Webhook, error) {
	cfg, err := o.at.load()
	if err != nil {
		return nil, err
	}

	hooked := slices.DeleteFunc(slices.Clone(cfg.Jobs), func(j config.Job) bool { return j.Webhook == nil })
	j, err := named("job with a webhook", job, hooked, func(j config.Job) string { return string(j.Name) })
	return j.Webhook, err
}

// delivered is the response of a webhook.
type delivered struct {
	Run      string `json:"run"`
	Repeated bool   `json:"repeated"`
	Error    string `json:"error,omitempty"`
}

func (o sendOptions) post(ctx context.Context, address string, headers http.Header, body []byte) (int, delivered, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()

	var answer delivered
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, answer, err
	}
	r.Header = headers
	r.Header.Set("Content-Type", o.kind)

	// Do not follow redirects: another server could replay the signed request.
	client := &http.Client{Transport: dial.New(dial.Options{Own: []string{address}, Proxy: true}), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return 0, answer, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer); err != nil {
		return 0, answer, fmt.Errorf("%s answers %s, which is not of rouse: %w", address, resp.Status, err)
	}
	return resp.StatusCode, answer, nil
}
