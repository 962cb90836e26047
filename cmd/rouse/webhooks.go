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
	"rouse/internal/text"
)

// sendTimeout is how long a daemon may take to keep a delivery.
const sendTimeout = 30 * time.Second

func newWebhooks(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Lists the webhooks of jobs: where other programs send their requests",
		Args:  cobra.NoArgs,
		RunE:  verb(func(cmd *cobra.Command, _ []string) error { return listWebhooks(cmd, at, asJSON) }),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(newWebhookSend(at))
	return cmd
}

func listWebhooks(cmd *cobra.Command, at *place, asJSON bool) error {
	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	var hooks []api.Webhook
	if done, err := s.fetch(cmd, asJSON, "/v1/webhooks", nil, &hooks); done || err != nil {
		return err
	}
	if len(hooks) == 0 {
		return sayf(cmd.OutOrStdout(), "no job has a webhook; to give one to a job: webhook: {path: /hooks/NAME, secret: secret:NAME}\n")
	}

	now := s.now()
	var rows [][]string
	for _, h := range hooks {
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
			last = fmt.Sprintf("run %s, %s, %s", h.LastRun, when(h.LastAt, now), cmp.Or(h.LastOutcome, "not ended"))
		}
		rows = append(rows, []string{h.Job, cmp.Or(h.URL, h.Path), h.Scheme, state, last})
	}
	return table(cmd.OutOrStdout(), "JOB ADDRESS SCHEME STATE LAST", rows)
}

type sendOptions struct {
	at              *place
	body, id, event string
	kind            string
	json            bool
}

func newWebhookSend(at *place) *cobra.Command {
	o := sendOptions{at: at}
	cmd := &cobra.Command{
		Use:   "send JOB",
		Short: "Sends a request to the webhook of a job, signed as its sender signs",
		Long: `Sends a request to the running daemon as the sender of the webhook would: signed with its
secret by its scheme, over the network address. The same --id again is the same delivery,
and gives the run of the first time.`,
		Example: `  rouse webhooks send bank --body transfer.json
  echo '{"action":"opened"}' | rouse webhooks send issues --body - --event issues`,
		Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error { return o.send(cmd, args[0]) }),
	}

	cmd.Flags().StringVar(&o.body, "body", "", "`file` with the body, - for standard input (default {})")
	cmd.Flags().StringVar(&o.id, "id", "", "what the sender calls this delivery (default a new one)")
	cmd.Flags().StringVar(&o.event, "event", "", "what its sender calls the event, where a header says so (github, gitlab)")
	cmd.Flags().StringVar(&o.kind, "content-type", "application/json", "of the body")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func (o sendOptions) send(cmd *cobra.Command, job string) error {
	hook, err := o.hook(job)
	if err != nil {
		return err
	}
	body, err := o.read(cmd.InOrStdin())
	if err != nil {
		return err
	}
	address, err := o.address(cmd.Context(), job)
	if err != nil {
		return err
	}

	headers, err := webhook.Scheme(hook.Scheme).Sign(hook.Secret, webhook.Delivery{ID: cmp.Or(o.id, "rouse-"+rand.Text()), Event: o.event}, body, time.Now())
	if err != nil {
		return err
	}
	status, answer, err := o.post(cmd.Context(), address, headers, body)
	switch {
	case err != nil:
		return err
	case answer.Error != "":
		return fmt.Errorf("%s answers %d %s: %s", hook.Path, status, http.StatusText(status), answer.Error)
	case o.json:
		return printJSON(cmd.OutOrStdout(), answer)
	case answer.Run == "":
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s answers %d %s\n", hook.Path, status, http.StatusText(status))
	case answer.Repeated:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "run %s was started by this delivery before\n", answer.Run)
	default:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "run %s\n", answer.Run)
	}
	return err
}

// hook is the webhook of a job in the configuration, which alone has its secret.
func (o sendOptions) hook(job string) (*config.Webhook, error) {
	cfg, err := o.at.load()
	if err != nil {
		return nil, err
	}

	var names []string
	for i := range cfg.Jobs {
		switch j := &cfg.Jobs[i]; {
		case j.Webhook == nil:
		case string(j.Name) == job:
			return j.Webhook, nil
		default:
			names = append(names, string(j.Name))
		}
	}
	return nil, usagef("%s", text.NoSuch("job with a webhook", job, names))
}

func (o sendOptions) read(stdin io.Reader) ([]byte, error) {
	switch o.body {
	case "":
		return []byte("{}"), nil
	case "-":
		return io.ReadAll(stdin)
	}
	return os.ReadFile(o.body)
}

// address is where the daemon takes the requests of a job's webhook.
func (o sendOptions) address(ctx context.Context, job string) (string, error) {
	s, err := o.at.open(ctx)
	if err != nil {
		return "", err
	}
	defer s.close()

	var hooks []api.Webhook
	if err := s.Get(ctx, "/v1/webhooks", nil, &hooks); err != nil {
		return "", err
	}
	at := slices.IndexFunc(hooks, func(h api.Webhook) bool { return h.Job == job })
	switch {
	case at < 0:
		return "", fmt.Errorf("the daemon knows no webhook of %s; has it read the configuration? rouse doctor", job)
	case hooks[at].URL == "":
		return "", errors.New("nobody listens for webhooks; start the daemon: rouse serve")
	}
	return hooks[at].URL, nil
}

// delivered is what a webhook answers.
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

	// Not to another server: whoever has the request and its signature can send it again.
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
