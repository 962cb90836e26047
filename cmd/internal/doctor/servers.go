package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"rouse/agent/model"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/text"
)

// askTimeout is the timeout for asking all model servers concurrently.
const askTimeout = 8 * time.Second

// askedServer holds the response of a model's server.
type askedServer struct {
	listing model.Listing
	at      time.Time // local time of the response
	err     error
	none    bool // the model has no server
}

// askServers asks the server of each configured model for its list of models. It runs no model and
// causes no cost.
func (d *Checker) askServers(ctx context.Context, s *plan.Setup) []askedServer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	out := make([]askedServer, len(s.Config.Models))
	var all sync.WaitGroup
	for i, m := range s.Config.Models {
		all.Go(func() {
			// Without its key, the request would be rejected.
			if held := plan.SecretObstacles(s.Config, fmt.Sprintf("models[%d].", i)); len(held) > 0 {
				out[i].err = errors.New(held[0].Text)
				return
			}
			provider, err := plan.NewProvider(m, d.Logger, nil)
			if err != nil {
				out[i].err = err
				return
			}

			lister, ok := provider.(model.Lister)
			if !ok {
				out[i].none = true
				return
			}
			out[i].listing, out[i].err = lister.List(ctx)
			out[i].at = time.Now()
		})
	}
	all.Wait()

	return out
}

// learnContexts passes the context sizes reported by servers to the plan, which uses them to check
// prompts.
func learnContexts(s *plan.Setup, asked []askedServer) {
	for i, m := range s.Config.Models {
		if s.Plan != nil && asked[i].err == nil {
			s.Plan.Runner.LearnContext(string(m.Name), asked[i].listing.Window)
		}
	}
}

// checkServers checks the server, key, name and context size of each model.
func checkServers(s *plan.Setup, asked []askedServer) []api.Check {
	var out []api.Check
	for i, a := range asked {
		out = append(out, checkServer(s.Config.Models[i], a))
	}
	return out
}

func checkServer(m config.Model, asked askedServer) api.Check {
	l := asked.listing
	name, at := "model "+string(m.Name), fmt.Sprintf("%s at %s", m.Model, l.Server)
	fail := func(remedy, format string, args ...any) api.Check {
		return Failed(name, at+": "+fmt.Sprintf(format, args...), remedy)
	}

	var refused *model.Error
	window := m.Window()
	switch {
	case asked.none:
		c := Passed(name, "it answers from "+string(m.Recording))
		c.NotTried = "a server: there is none"
		return c
	case errors.As(asked.err, &refused) && refused.Kind == model.KindAuth:
		return fail("set the key again where api_key names it: rouse secrets set NAME, or the variable", "the key is not accepted: %s", refused.Message)
	case errors.As(asked.err, &refused) && refused.Kind == model.KindUnavailable: // its message names server and model
		return Failed(name, refused.Error(), "start the server, or see to base_url and the network; rouse doctor --offline leaves servers out")
	case asked.err != nil:
		return undone(name, asked.err)
	case l.Known && !l.Has && m.Provider == "ollama":
		return fail("ollama pull "+m.Model+", or name a model that is there", "%s", missingModel(m.Model, l.Models))
	case l.Known && !l.Has:
		return fail("correct model: in the configuration, or ask for access to it", "%s", missingModel(m.Model, l.Models))
	case l.NoTool:
		return fail("choose a model that can; playbooks need none", "it cannot call tools, which every prompt needs")
	case l.Window > 0 && window > l.Window:
		return fail(fmt.Sprintf("set context_window: %d, or choose a larger model", l.Window), "it reads %d tokens, and %d are counted on (context_window); runs use no more than the server reads", l.Window, window)
	}

	found := []string{"reachable"}
	untried := []string{fmt.Sprintf("an answer, which may cost (rouse selftest --model %s)", m.Name)}
	if m.APIKey != "" && l.Known {
		found = append(found, "key accepted")
	}
	if l.Has {
		found = append(found, "the model is there")
	} else {
		untried = append(untried, "whether it takes the key and has the model: it lists none")
	}
	switch {
	case l.Window > 0 && window > 0:
		found = append(found, fmt.Sprintf("reads %d tokens, of which %d are used", l.Window, window))
	case l.Window > 0:
		found = append(found, fmt.Sprintf("reads %d tokens", l.Window))
	case window > 0:
		untried = append(untried, fmt.Sprintf("whether it reads the %d tokens that are counted on: the server does not say", window))
	default:
		untried = append(untried, "how many tokens it reads: the server does not say, and context_window neither")
	}
	c := Passed(name, at+": "+strings.Join(found, ", "))
	c.NotTried = strings.Join(untried, "; ")
	return c
}

// missingModel returns a message that a server does not have a model, with a suggestion if
// possible.
func missingModel(name string, has []string) string {
	if len(has) == 0 {
		return "the server has no models"
	}
	const most = 20 // some servers list hundreds
	if ask := text.DidYouMean(name, has); ask != "" {
		return "the server does not have it; " + ask
	}
	return "the server does not have it; there are " + text.List(has, most)
}
