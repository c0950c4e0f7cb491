package web

import "testing"

// TestSpans opens pages that have no samples yet, and chooses another span.
func TestSpans(t *testing.T) {
	b := newBrowser(t, false)
	page := b.get("/?span=two-weeks", 200)
	expect(t, page, "No data for the last two weeks yet.", `<a href="/?span=hour">Hour</a>`, `<a href="/?span=two-weeks" aria-current="true">Two weeks</a>`)
	expect(t, b.get("/workers?pattern=host%3Dv", 200), "no line yet", `<a href="/workers?pattern=host%3Dv&amp;span=day">Day</a>`, `aria-current="true">Hour<`, "span=hour")
	expect(t, b.get("/?span=year", 400), "it is hour, day or two-weeks")
	b.get("/workers?span=year", 400)
	b.site.sampler.Sample(t.Context())
	expect(t, b.get("/?span=day", 200), "1 day ago</span><span>12 hours ago</span><span>now", `<path class="line" d="M359,`,
		"Slots busy over the last day: now 80 %, on average 80 %, scale from 0 to 100 %", "No data for the last day yet.", "<b>–</b>")
	expect(t, b.get("/workers?span=day", 200), `aria-label="Slots busy over the last day: on average 17 %, scale from 0 to 100 %"`, "average 17 %", "share of busy slots of each worker over the last day")
}
