SELECT page,
       count(*) AS clicks,
       avg(ms) AS average_ms,
       approx_count_distinct(user) AS users
FROM events
GROUP BY page
