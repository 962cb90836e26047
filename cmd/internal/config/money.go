package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"rouse/agent/model"
)

// defaultCost is the daemon's limit of a day when a model has a price, in USD.
const defaultCost = 5

// Rate is what the model costs: the configured price, nothing on this machine, or else the known
// price; false when nobody knows it.
func (m Model) Rate() (model.Price, bool) {
	if p := m.Price; p != nil {
		// Without a price of its own cached input costs as much as input: too much rather than too little.
		rate := model.Price{Input: p.Input, Output: p.Output, Cached: p.Input}
		if p.CachedInput != nil {
			rate.Cached = *p.CachedInput
		}
		return rate, true
	}

	if m.Provider == "ollama" || m.Provider == replays || local(m.BaseURL) {
		return model.Price{}, true
	}

	known, ok := model.Lookup(m.Model)
	return known.Price, ok
}

// Window is how many tokens the model's context holds, 0 when nobody knows.
func (m Model) Window() int {
	if m.ContextWindow > 0 {
		return m.ContextWindow
	}
	known, _ := model.Lookup(m.Model)
	return known.Window
}

// local says whether a server is on this machine.
func local(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// MicroUSD is money as it is counted.
func MicroUSD(usd float64) int64 {
	const most = 1 << 50 // a billion dollars: no limit at all
	if usd <= 0 {
		return 0
	}
	// At least 1: a tiny limit must not turn into 0, which means none.
	return max(int64(min(usd*1e6, most)), 1)
}

// limitCost gives a daemon that could spend money a limit.
func (c *Config) limitCost(d *decoder) {
	if c.Limits.CostUSDPerDay != 0 || d.given("limits.cost_usd_per_day") {
		return
	}
	for _, m := range c.Models {
		if rate, ok := m.Rate(); ok && !rate.Free() {
			c.Limits.CostUSDPerDay = defaultCost
		}
	}
	if len(c.executors()) > 0 { // whose own account pays
		c.Limits.CostUSDPerDay = defaultCost
	}
}

// money refuses a limit in money for a model whose price nobody knows.
func (c *checker) money() {
	for i, m := range c.cfg.Models {
		if m.Name == "" || m.Provider == "" || m.Model == "" && m.Provider != replays {
			continue // which was refused
		}
		if _, ok := m.Rate(); ok {
			continue
		}

		limit := c.limitOver(string(m.Name))
		if limit == "" {
			continue
		}

		c.bad(fmt.Sprintf("models[%d]", i), "nobody knows what the model %q costs, and %s", m.Model, limit).Hint =
			"add what its provider takes in USD per million tokens, like price: {input: 1.25, output: 10, cached_input: 0.125}, or all 0 when it is free"
	}
}

// limitOver is the first limit in money that applies to a model, or to one that it may take
// over from; "" when there is none, or nobody uses the model.
func (c *checker) limitOver(name string) string {
	for _, user := range c.fallbackChain(name) {
		if limit := c.limitOf(user); limit != "" {
			return limit
		}
	}
	return ""
}

// limitOf is limitOver of a model by itself.
func (c *checker) limitOf(name string) string {
	used := false
	says := func(path string, usd float64) string {
		return fmt.Sprintf("%s limits it to %v USD", path, usd)
	}
	for i, a := range c.cfg.Agents {
		if !On(a.Enabled) {
			continue
		}

		path := fmt.Sprintf("agents[%d]", i)
		of := a.Model == name || slices.ContainsFunc(c.jobsOf[string(a.Name)], func(i int) bool { return c.cfg.Jobs[i].Model == name && On(c.cfg.Jobs[i].Enabled) })
		used = used || of

		switch key, usd := a.Budget.CostKey(); {
		case of && usd > 0:
			return says(path+".budget."+key, usd)
		case a.Model == name && a.Bounds.CostUSD > 0:
			return says(path+".bounds.cost_usd", a.Bounds.CostUSD)
		}
	}

	for i, j := range c.cfg.Jobs {
		agent := c.agent[j.Agent]
		if !On(j.Enabled) || j.Playbook != nil || agent == nil || !On(agent.Enabled) || (j.Model != name && (j.Model != "" || agent.Model != name)) {
			continue
		}

		path := fmt.Sprintf("jobs[%d]", i)
		switch key, usd := j.Budget.CostKey(); {
		case usd > 0:
			return says(path+".budget."+key, usd)
		case j.Bounds.CostUSD > 0:
			return says(path+".bounds.cost_usd", j.Bounds.CostUSD)
		}
	}

	switch limit := c.cfg.Limits.CostUSDPerDay; {
	case used && limit == 0 && c.cfg.Limits.CostUSDPerMonth > 0:
		return says("limits.cost_usd_per_month", c.cfg.Limits.CostUSDPerMonth)
	case !used || limit == 0:
		return ""
	case c.d.given("limits.cost_usd_per_day"):
		return says("limits.cost_usd_per_day", limit)
	default:
		return fmt.Sprintf("limits.cost_usd_per_day is %v USD by default, since another model has a price", limit)
	}
}
