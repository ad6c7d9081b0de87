SELECT page, count(*) AS visits, max(ms) AS longest
FROM events
GROUP BY page
