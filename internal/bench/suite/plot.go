package main

import (
	"fmt"
	"math"
	"strings"
)

// A plot is drawn in these pixels: room for the axes' numbers on the left and below, for lines' names on the right.
const (
	plotWidth, plotHeight   = 760, 340
	plotLeft, plotRight     = 56, 190
	plotTop, plotBottom     = 20, 48
	plotAcross, plotUpright = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
)

var plotColours = []string{"#1f6fb4", "#c2510a", "#2f8f3f"}

// plot draws a curve as SVG: microseconds upward from zero, the rest across on a scale of powers.
func plot(c curve) string {
	low, high, top := math.Inf(1), math.Inf(-1), 0.0
	for _, l := range c.lines {
		for _, p := range l.points {
			low, high, top = min(low, math.Log(p.x)), max(high, math.Log(p.x)), max(top, p.y)
		}
	}
	step := niceStep(top / 5)
	top = math.Ceil(top/step) * step
	x := func(v float64) float64 { return plotLeft + (math.Log(v)-low)/max(high-low, 1e-9)*plotAcross }
	y := func(v float64) float64 { return plotTop + (1-v/top)*plotUpright }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#222">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<title>CPU of a decision, µs, at %s</title>`+"\n", c.what)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, plotHeight)
	for v := 0.0; v <= top+step/2; v += step {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, y(v), plotLeft+plotAcross, plotLeft-8, y(v)+4, humane(math.Round(v*100)/100))
	}
	for _, p := range c.lines[0].points {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(p.x), plotTop+plotUpright+18, humane(p.x))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", plotLeft+plotAcross/2, plotHeight-8, c.what)
	fmt.Fprintf(&b, `<text x="%d" y="13">CPU of a decision, µs</text>`+"\n", plotLeft-40)
	taken := []float64{}
	for i, l := range c.lines {
		colour := plotColours[i%len(plotColours)]
		var path strings.Builder
		for j, p := range l.points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x(p.x), y(p.y))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x(p.x), y(p.y), colour)
		}
		at := y(l.points[len(l.points)-1].y)
		for _, t := range taken { // names keep clear of one another
			if math.Abs(at-t) < 15 {
				at = t + 15
			}
		}
		taken = append(taken, at)
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%d" y="%.1f" fill="%s">%s</text>`+"\n",
			path.String(), colour, plotLeft+plotAcross+10, at+4, colour, l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// niceStep returns the least of 1, 2 and 5 times a power of ten that is not below v.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}
