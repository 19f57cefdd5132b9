package migrate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirlimits/weir"
)

// zaeField is a field of a cron expression as zae-limiter stores it: m for minutes, h for hours, D for days of the
// month, M for months, w for days of the week. A field that is left out is *.
var zaeField = regexp.MustCompile(`([mhDMw])([0-9*/,-]+)`)

// zaeQuarters are ways to write each third month, from January on.
var zaeQuarters = map[string]bool{"*/3": true, "1-12/3": true, "1,4,7,10": true, "1-10/3": true}

// zaeWindow returns the window of a quota that is reset by a stored cron expression in a time zone.
func zaeWindow(stored, zone string) (w weir.Window, err error) {
	cron := map[string]string{"m": "*", "h": "*", "D": "*", "M": "*", "w": "*"}
	entries, version1 := strings.CutPrefix(stored, "1")
	for _, f := range zaeField.FindAllStringSubmatch(entries, -1) {
		cron[f[1]] = f[2]
	}
	unit := ""
	switch day, _ := strconv.Atoi(cron["D"]); cron["m"] + " " + cron["h"] {
	case "0 *":
		if cron["D"]+cron["M"]+cron["w"] == "***" {
			unit, zone = "hour", "UTC"
		}
	case "0 0":
		unit = zaeDays(cron["D"], cron["M"], cron["w"], day)
	}
	if unit == "" || !version1 || strings.ContainsAny(entries, ";") {
		given := cron["m"] + " " + cron["h"] + " " + cron["D"] + " " + cron["M"] + " " + cron["w"]
		return w, fmt.Errorf(
			"a quota is reset at the begin of an hour, day, week, month, quarter or year, and not by %q", given,
		)
	}
	err = w.UnmarshalText([]byte(unit + "@" + zone))
	return w, err
}

// zaeDays returns the window that begins at midnight of days of the month, months and days of the week; "" for none.
// A month without its 29th, 30th or 31st has no reset there, and one at its end here.
func zaeDays(days, months, weekdays string, day int) string {
	const everyMonth, everyWeekday = "*", "*"
	switch {
	case days+months+weekdays == "***":
		return "day"
	case days+months == "**" && len(weekdays) == 1:
		if n, err := strconv.Atoi(weekdays); err == nil && n <= 7 {
			return "week+" + [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun"}[n]
		}
	case weekdays != everyWeekday:
	case months == everyMonth && day >= 1 && day <= 28:
		return "month+" + strconv.Itoa(day)
	case days == "1" && months == "1":
		return "year"
	case days == "1" && zaeQuarters[months]:
		return "quarter"
	}
	return ""
}
